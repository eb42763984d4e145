"""Learned distances say how they can be searched, and what is within so many steps is never left out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sgm.distances.bilinear import Bilinear, BilinearConfig, BilinearDistance
from sgm.distances.contrastive import FOR_VECTORS, Contrast, ContrastiveDistance
from sgm.distances.embedded import Embedder
from sgm.distances.regression import FOR_VECTORS as REGRESSION
from sgm.distances.regression import RegressionDistance
from sgm.learning.pairs import VECTORS
from sgm.memory.distance import paired
from sgm.memory.nodes import Nodes
from sgm.memory.search import Search, is_searchable

NUMBER = 600


def regression(head):
    import dataclasses

    config = dataclasses.replace(REGRESSION, head=head, cap=20)
    distance = RegressionDistance(Embedder(config, (1, 6)), (1, 6), config)
    distance.lags = np.array([0, 1, 5, 20], np.float32)
    distance.levels = np.array([0, 2.0, 6.0, 30.0], np.float32)
    return distance, np.random.default_rng(0).normal(0, 4, (NUMBER, config.embedding)).astype(np.float32)


def contrastive():
    distance = ContrastiveDistance(Contrast(FOR_VECTORS, (1, 6)), (1, 6), FOR_VECTORS)
    distance.lags, distance.cosines = np.array([0, 3, 20], np.float32), np.array([1.0, 0.6, 0.1], np.float32)
    return distance, distance._finish(np.random.default_rng(0).normal(size=(NUMBER, 8)).astype(np.float32))


def bilinear():
    torch.manual_seed(0)
    network = Bilinear(BilinearConfig(embedding=6), (16, 16))
    with torch.no_grad():
        network.W += 0.1 * torch.randn(6, 6)
        network.encoder[-1].weight += 0.2 * torch.randn(6)
        network.encoder[-1].bias += 0.1 * torch.randn(6)
    distance = BilinearDistance(network, (16, 16), BilinearConfig(embedding=6))
    distance.scale = np.array([0.8, 0.4, 10.0], np.float32)
    with torch.no_grad():
        embeddings = network.encoder[-1](torch.randn(NUMBER, 6)).numpy()
    return distance, embeddings


DISTANCES = {"mrn": lambda: regression("mrn"), "contrastive": contrastive, "bilinear": bilinear}


@pytest.mark.parametrize("name", DISTANCES)
def test_what_is_within_some_steps_is_within_reach(name):
    distance, embeddings = DISTANCES[name]()
    table = distance(embeddings, embeddings)
    for outgoing in (True, False):
        keys, probes = distance.keys(embeddings), distance.probes(embeddings, outgoing)
        gaps = np.linalg.norm(probes[:, None].astype(np.float64) - keys, axis=2)
        for steps in (0.5, 2.0, 5.0, 9.0):
            near = (table if outgoing else table.T) <= steps
            radius = distance.reach(steps)
            assert math.isfinite(radius) and near.any() and not near.all()
            assert (gaps[near] <= radius).all()
    assert distance.reach(1e9) == math.inf


@pytest.mark.parametrize("name", DISTANCES)
def test_a_search_finds_the_nodes_that_asking_for_all_finds(name):
    distance, embeddings = DISTANCES[name]()
    nodes = Nodes()
    half = NUMBER // 2
    nodes.append(np.arange(half), embeddings[:half], None, None)
    search = Search(distance, nodes, 5.0)
    others = embeddings[half:]
    for outgoing in (True, False):
        pairs = np.repeat(np.arange(half), half), np.tile(np.arange(half), half)
        ends = (others[pairs[0]], embeddings[pairs[1]]) if outgoing else (embeddings[pairs[1]], others[pairs[0]])
        steps = paired(distance, *ends).reshape(half, half)
        found = search.within(others, 5.0, outgoing)
        row, column = np.nonzero(steps <= 5.0)
        assert found.query.tolist() == row.tolist() and found.node.tolist() == column.tolist()
        np.testing.assert_allclose(found.steps, steps[row, column], rtol=1e-5)
        near = search.nearest(others, outgoing, within=0.1)
        np.testing.assert_array_equal(near.node, steps.argmin(axis=1))
        np.testing.assert_allclose(near.distance, steps.min(axis=1), rtol=1e-5)


def test_a_distance_without_a_bound_is_not_searched():
    distance, _ = regression("iqe")
    assert distance.config.encoder == VECTORS
    assert not is_searchable(distance, 5.0)
    assert is_searchable(regression("mrn")[0], 5.0) and not is_searchable(regression("mrn")[0], 20.0)
    assert not is_searchable(object(), 5.0)
