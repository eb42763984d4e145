"""Theorem 1: the bound holds whenever its conditions do, for any asymmetric distance."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import sgm
from tests.conftest import plane, tables


@given(
    tables(most=20),
    st.sampled_from(["two-way", "incoming", "outgoing", "perceptual"]),
    st.sampled_from(["memory", "neighbors"]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.sampled_from([1.0, 2.0, 5.0]),
)
def test_the_bound_is_never_exceeded_when_the_conditions_hold(table, criterion, scope, tau_a, dense_max_dist):
    n = len(table)
    probe = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table), criterion=criterion, scope=scope, tau_a=tau_a, tau_p=3.0, max_dist=4.0, k=None
    )
    probe.extend(np.arange(n))
    tau = probe.certificate(np.arange(n)).tau
    # A memory over the same merges whose MaxDist leaves the margin that the theorem needs.
    wide = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table),
        criterion=criterion,
        scope="memory",
        tau_a=tau_a,
        tau_p=3.0,
        k=None,
        max_dist=dense_max_dist + 2 * max(tau, float(np.ptp(table.astype(np.float64)))),
    )
    wide.extend(np.arange(n))
    certificate = wide.certificate(np.arange(n), max_dist=dense_max_dist)
    assert certificate.applies
    assert not certificate.exceeded.any()
    assert np.isfinite(certificate.sparse_cost).all()


@given(tables(most=16), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_margin_alone_decides_when_nothing_is_filtered_or_removed(table, tau_a):
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table), tau_a=tau_a, tau_p=None, max_dist=6.0, k=None, scope="memory"
    )
    memory.extend(np.arange(len(table)))
    tau = memory.certificate(np.arange(len(table))).tau
    dense_max_dist = 6.0 - 2 * tau - 1e-9  # so that adding 2 tau again cannot round over 6
    assume(dense_max_dist > 0)
    certificate = memory.certificate(np.arange(len(table)), max_dist=dense_max_dist)
    assert certificate.applies and not certificate.exceeded.any()


def brute_force_consistency(table, merged, kept):
    pairs = list(zip(merged, kept, strict=True))
    c_in = [max(abs(float(table[x, m]) - float(table[x, k])) for x in range(len(table))) for m, k in pairs]
    c_out = [max(abs(float(table[m, x]) - float(table[k, x])) for x in range(len(table))) for m, k in pairs]
    return c_in, c_out


def test_consistencies_costs_and_counts_are_measured_over_the_whole_buffer():
    points, table = plane(150)
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table), lambda rows: points[rows], tau_p=2.5, tau_a=2.0, max_dist=5.0, k=None
    )
    report = memory.extend(np.arange(150))
    certificate = memory.certificate(np.arange(150))
    assert len(certificate.merged) == report.merged
    kept = memory.nodes[report.assignment[certificate.merged]]
    c_in, c_out = brute_force_consistency(table, certificate.merged, kept)
    np.testing.assert_allclose(certificate.c_in, c_in)
    np.testing.assert_allclose(certificate.c_out, c_out)
    assert certificate.tau == max(c_in + c_out)
    assert certificate.within_nominal == sum(max(pair) <= 2.0 for pair in zip(c_in, c_out, strict=True))
    assert len(certificate.source) + certificate.unreachable == len(memory) * (len(memory) - 1)
    for number in range(0, len(certificate.source), 97):
        u, v = int(certificate.source[number]), int(certificate.target[number])
        assert certificate.sparse_cost[number] == pytest.approx(memory.plan_nodes(u, v).cost)
        assert certificate.dense_cost[number] <= certificate.sparse_cost[number] + 1e-6
        assert certificate.bound[number] == pytest.approx(2 * certificate.hops[number] * certificate.tau)


def test_the_certificate_says_which_conditions_fail():
    points, table = plane(150)
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table), lambda rows: points[rows], tau_p=2.5, tau_a=2.0, max_dist=5.0, k=3
    )
    memory.extend(np.arange(150))
    memory.record(*(int(end[0]) for end in memory.edges()[:2]), False)
    certificate = memory.certificate(np.arange(150), pairs=200, seed=1)
    assert list(certificate.conditions.values()) == [True, False, False, False]
    assert not certificate.applies
    assert len(certificate.source) + certificate.unreachable == 200
    text = str(certificate)
    assert "the bound is not guaranteed" in text and text.count("FAILS") == 3
    again = memory.certificate(np.arange(150), pairs=200, seed=1)
    assert json.dumps(certificate.asdict()) == json.dumps(again.asdict())
    assert certificate.asdict()["tau"] == certificate.tau


def test_uniform_subsampling_gives_no_guarantee():
    _, table = plane(60)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="uniform", size=20, k=None)
    memory.extend(np.arange(60))
    certificate = memory.certificate(np.arange(60))
    assert not certificate.conditions["every observation is a node or merged into one"]
    assert len(certificate.merged) == 0 and certificate.tau == 0


def test_other_observations_than_those_given_are_refused():
    _, table = plane(30)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), tau_p=None)
    with pytest.raises(sgm.EmptyMemory):
        memory.certificate(np.arange(0))
    memory.extend(np.arange(30))
    with pytest.raises(sgm.InputError, match="got 29 observations, but the memory was given 30"):
        memory.certificate(np.arange(29))
    with pytest.raises(sgm.InputError, match="not the observations"):
        memory.certificate(np.arange(30)[::-1])
