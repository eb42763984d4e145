"""What the page is told about nodes, edges, plans, components, time and another memory."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from scipy.stats import beta

import sgm
from sgm.inspector import answers, container, png, timeline
from sgm.inspector.compare import compare
from sgm.inspector.components import components
from sgm.inspector.find import find
from sgm.inspector.view import COMPUTED, FILTERED, GUARDED, REMOVED, View, belief, drawn_edges
from tests.inspector.worlds import Straight, live_for, plane
from tests.memory.test_events import SETTINGS, life, world

SPARES = sgm.FirstFailure(guard=True, spares=True)
POLICIES = ["first-failure", "guarded", "second-failure", sgm.Belief(threshold=0.3), sgm.Belief(guard=True), SPARES]


def lived(policy="guarded", tries=150, **options):
    memory = plane(policy=policy, **options)
    live_for(memory, tries)
    return memory


# -- the map -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_map_has_the_edges_the_filter_keeps_and_the_removed_ones_with_what_is_known_of_them(policy):
    memory = lived(policy)
    arrays = answers.graph_arrays(View(memory))
    pairs = list(zip(arrays["source"].tolist(), arrays["target"].tolist(), strict=True))
    gone = set(zip(*(end.tolist() for end in memory.removed()[:2]), strict=True))
    standing = set(zip(*(end.tolist() for end in memory.edges()[:2]), strict=True))
    assert pairs == sorted(standing | gone) and len(set(pairs)) == len(pairs)
    for place, (u, v) in enumerate(pairs):
        known = memory.evidence(u, v)
        assert (arrays["successes"][place], arrays["failures"][place]) == (known.successes, known.failures)
        assert arrays["state"][place] == (REMOVED if (u, v) in gone else GUARDED if known.guarded else 0)
    prices = memory.prices()
    for place, (u, v) in enumerate(pairs):
        assert arrays["price"][place] == pytest.approx(prices[v, u], rel=1e-3)
    np.testing.assert_array_equal(arrays["component"], memory.parts())
    np.testing.assert_array_equal(arrays["age"], memory.nodes)
    assert arrays["visits"].sum() == len(memory.assignment)
    np.testing.assert_allclose(arrays["position"], memory.attributes["position"], rtol=1e-4)


def test_of_too_many_edges_those_that_were_tried_are_drawn_and_then_the_shortest_of_each_node():
    memory = lived(tries=20)
    table = View(memory).table
    tried = np.flatnonzero(table.successes + table.failures > 0)
    drawn = drawn_edges(table, most=len(tried) + len(memory))
    assert len(drawn) == len(tried) + len(memory) and set(tried) <= set(drawn) and (np.diff(drawn) > 0).all()
    for node in range(0, len(memory), 7):
        own = np.flatnonzero((table.source == node) & (table.kept | table.removed))
        shortest = own[table.weight[own].argmin()]
        assert shortest in drawn


def test_the_summary_says_what_the_memory_is_and_is_json():
    memory = lived()
    facts = answers.summary(View(memory, "v1"))
    json.dumps(facts, allow_nan=False)
    stats = memory.stats()
    assert (facts["version"], facts["nodes"], facts["edges"]) == ("v1", stats.nodes, len(memory.edges().source))
    assert facts["removed"] == len(memory.removed().source)
    assert facts["largest_component"] == memory.largest_part()
    assert facts["events"] == {"first": 0, "last": len(memory.events().sequence)}
    assert facts["layout"] == {"kind": "positions", "attribute": "position", "text": ""}
    assert facts["attributes"] == [{"name": "position", "shape": [2], "dtype": "float32"}]
    del memory.attributes["position"]
    assert answers.summary(View(memory))["layout"] == {"kind": "computed", "attribute": None, "text": COMPUTED}


def test_an_empty_memory_can_be_looked_at():
    view = View(sgm.SparseGraphicalMemory(Straight()))
    assert answers.summary(view)["nodes"] == 0 and not len(answers.graph_arrays(view)["source"])
    assert components(view)["components"] == [] and find(view, "0")["nodes"] == []
    with pytest.raises(sgm.UnknownNode):
        answers.plan(view, 0, 0)


@pytest.mark.parametrize(("name", "width"), [("pose", 3), ("achieved_goal", 2)])
def test_positions_are_taken_from_other_attributes_where_there_is_no_position(name, width):
    memory = plane()
    values = np.random.default_rng(3).normal(size=(len(memory), width))
    memory.attributes[name] = values
    assert View(memory).places.attribute == "position"
    del memory.attributes["position"]
    view = View(memory)
    assert view.places.attribute == name
    np.testing.assert_allclose(view.places.xy, values[:, :2])


def test_rows_and_columns_are_drawn_downwards_and_to_the_right():
    memory = plane()
    position = memory.attributes["position"]
    places = View(memory, axes="rc").places.xy
    np.testing.assert_allclose(places, np.stack([position[:, 1], -position[:, 0]], axis=1))


def test_a_node_without_a_position_is_drawn_amid_its_neighbours_and_that_is_said():
    memory = plane()
    position = memory.attributes["position"].copy()
    position[7] = np.nan
    memory.attributes["position"] = position
    view = View(memory)
    assert view.places.unplaced == 1 and np.isfinite(view.places.xy).all()
    low, high = np.nanmin(position, axis=0), np.nanmax(position, axis=0)
    assert (view.places.xy[7] >= low).all() and (view.places.xy[7] <= high).all()
    assert any("1 nodes have no position" in text for text in answers.limits(view))


# -- nodes and edges ---------------------------------------------------------------------------------------------


def test_a_node_has_its_observations_and_edges():
    memory = sgm.SparseGraphicalMemory(Straight(), tau_a=1.5, tau_p=None, max_dist=4, k=4)
    points = np.random.default_rng(0).uniform(0, 12, (200, 2)).astype(np.float32)
    memory.extend(points, attributes={"position": points, "one": np.arange(200.0), "big": np.zeros((200, 5, 5))})
    told = answers.node(View(memory), 3)
    json.dumps(told, allow_nan=False)
    assert told["observations"] == np.flatnonzero(memory.assignment == 3).tolist() and len(told["observations"]) > 1
    assert told["visits"] == len(told["observations"]) and told["stream"] == memory.nodes[3]
    assert told["attributes"]["one"] == memory.attributes["one"][3] and told["attributes"]["big"] == {"shape": [5, 5]}
    assert {edge["target"] for edge in told["out"]} == set(memory.edges().target[memory.edges().source == 3].tolist())
    assert {edge["source"] for edge in told["in"]} == set(memory.edges().source[memory.edges().target == 3].tolist())
    with pytest.raises(sgm.UnknownNode):
        answers.node(View(memory), len(memory))


@pytest.mark.parametrize(("successes", "failures"), [(0, 0), (3, 1), (40, 2), (0, 9)])
def test_the_belief_in_an_edge_is_the_beta_distribution_of_its_tries(successes, failures):
    told, known = belief(successes, failures), beta(1 + successes, 1 + failures)
    assert told["mean"] == pytest.approx(known.mean())
    assert (told["low"], told["high"]) == pytest.approx(known.interval(0.95))


def test_an_edge_says_by_which_rule_it_was_removed_and_when():
    memory = plane(policy="first-failure")
    (u, v), (a, b) = (tuple(int(end[place]) for end in memory.edges()[:2]) for place in (0, 9))
    memory.record(u, v, True)
    memory.record(u, v, False, episode=4)
    memory.remove(a, b)
    view = View(memory)
    told = answers.edge(view, u, v)
    json.dumps(told, allow_nan=False)
    assert told["state"] == REMOVED and told["removed_at"] == 2 and told["price"] is None
    assert told["removed_event"]["sequence"] == 3 and "first-failure" in told["rule"] and "event 3" in told["rule"]
    assert [(event["kind"], event["episode"]) for event in told["events"]] == [
        ("reached", None),
        ("failed", 4),
        ("removed", 4),
    ]
    assert answers.edge(view, a, b)["rule"] == "Removed by hand, event 4."
    memory.restore(u, v)
    told = answers.edge(View(memory), u, v)
    assert told["removed_event"] is None and told["rule"] == "In use: 1 of 2 tries reached its target."


def test_a_removal_by_hand_right_after_a_failed_try_is_told_from_one_by_the_policy():
    memory = plane(policy="second-failure")
    u, v = (int(end[0]) for end in memory.edges()[:2])
    memory.record(u, v, False)
    memory.remove(u, v)
    assert answers.edge(View(memory), u, v)["rule"].startswith("Removed by hand")


@pytest.mark.parametrize(
    ("policy", "word"), [("second-failure", "twice"), (sgm.Belief(threshold=0.3), "fell below 0.3")]
)
def test_every_policy_gives_its_reason(policy, word):
    memory = plane(policy=policy)
    u, v = (int(end[0]) for end in memory.edges()[:2])
    while not memory.record(u, v, False):
        pass
    assert word in answers.edge(View(memory), u, v)["rule"]


@pytest.mark.parametrize("policy", ["second-failure", "belief"])
def test_a_removal_under_another_policy_is_not_put_down_to_that_of_now(policy, tmp_path):
    memory = plane(policy="first-failure")
    u, v = (int(end[0]) for end in memory.edges()[:2])
    memory.record(u, v, False)
    memory.save(tmp_path / "m.sgm")
    opened = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", Straight(), policy=policy)
    told = answers.edge(View(opened), u, v)["rule"]
    assert f"an earlier policy rejected the edge; the current policy is {policy}" in told


def test_guarded_and_filtered_edges_say_so():
    line = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(line), criterion="none", max_dist=2.5, k=1, policy="guarded")
    memory.extend(np.arange(4))
    assert FILTERED in View(memory).state
    told = answers.edge(View(memory), 0, 2)
    assert told["state"] == FILTERED and "k-nearest filter" in told["rule"]
    memory.filter(None)
    memory.remove(0, 2)
    memory.record(0, 1, False)
    told = answers.edge(View(memory), 0, 1)
    assert told["state"] == GUARDED and told["guarded"] and told["price"] > told["weight"] and "Guarded" in told["rule"]


def test_images_come_from_thumbnails_and_zeros_are_none():
    memory = plane()
    images = np.random.default_rng(0).integers(1, 255, (len(memory), 4, 6, 3), np.uint8)
    images[5] = 0
    memory.attributes["thumbnail"] = images
    view = View(memory)
    assert view.image_url(3) == "/api/image/3" and view.image_url(5) is None
    assert View(plane()).images is None
    data = png.encode(images[3])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[16:24] == (6).to_bytes(4, "big") + (4).to_bytes(4, "big")
    start = data.index(b"IDAT")
    length = int.from_bytes(data[start - 4 : start], "big")
    rows = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8).reshape(4, 1 + 18)
    np.testing.assert_array_equal(rows[:, 1:].reshape(4, 6, 3), images[3])


# -- plans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_plan_is_that_of_the_memory(policy):
    memory = lived(policy)
    view = View(memory)
    found = 0
    for start in range(0, len(memory), 5):
        for goal in range(0, len(memory), 7):
            told = answers.plan(view, start, goal)
            try:
                plan = memory.plan_nodes(start, goal)
            except sgm.NoPath:
                assert "No path leads" in told["error"]
                continue
            found += 1
            assert told["nodes"] == plan.nodes.tolist() and told["cost"] == plan.cost
            assert told["steps"] == plan.steps.sum()
            assert [leg["price"] for leg in told["legs"]] == pytest.approx(plan.weights.tolist())
            assert [leg["weight"] for leg in told["legs"]] == pytest.approx(plan.steps.tolist())
    assert found > 20


# -- components, search, events ----------------------------------------------------------------------------------


def test_components_are_listed_by_size_with_the_removed_edges_that_joined_them():
    line = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(line), criterion="none", max_dist=1.5, k=None)
    memory.extend(np.arange(9))
    assert components(View(memory))["text"].startswith("The graph is strongly connected: each of the 9 nodes")
    memory.remove(5, 6)
    memory.remove(0, 1)
    told = components(View(memory))
    assert [part["size"] for part in told["components"]] == [5, 3, 1]
    assert told["components"][1]["sample"] == [6, 7, 8]
    cuts = [
        (cut["edge"]["source"], cut["edge"]["target"], cut["from_component"], cut["to_component"])
        for cut in told["cut"]
    ]
    assert cuts == [(5, 6, 0, 1), (0, 1, 2, 0)]


@pytest.mark.parametrize(
    ("query", "nodes", "edges"),
    [
        ("12", [12], 0),
        (" 12 ", [12], 0),
        ("0 {v}", None, 1),
        ("0→{v}", None, 1),
        ("0->{v}", None, 1),
        ("10000000000000000000", [], 0),
    ],
)
def test_nodes_and_edges_are_found_by_number(query, nodes, edges):
    memory = plane()
    v = int(memory.edges().target[0])
    told = find(View(memory), query.format(v=v))
    assert told["nodes"] == ([0, v] if nodes is None else nodes)
    assert ([0, v] in told["edges"]) == bool(edges)


def test_nodes_are_found_by_the_value_of_an_attribute_and_other_texts_get_help():
    memory = plane()
    memory.attributes["heading"] = np.arange(len(memory)) % 4 / 2
    told = find(View(memory), "heading=0.5")
    assert told["nodes"] == list(range(1, len(memory), 4))
    assert "no attribute" in find(View(memory), "nothing=1")["text"]
    for query in ("", "../../etc/passwd", "<script>", "١٢", "1" * 10_000, "a=b=c"):
        told = find(View(memory), query)
        assert told["nodes"] == [] and told["edges"] == []


def test_events_are_listed_after_a_number():
    memory = lived()
    view, every = View(memory), memory.events()
    told = answers.events(view, 10, 5)
    assert [event["sequence"] for event in told["events"]] == [11, 12, 13, 14, 15]
    assert told["events"][0]["kind"] == every.kind[10] and told["last"] == len(every.sequence)


# -- time --------------------------------------------------------------------------------------------------------


def same_groups(one, other) -> bool:
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))


def check_state(memory, event) -> None:
    """The state at an event beside the memory that replaying the events gives."""
    view, past = View(memory), memory.at(event)
    arrays = timeline.state_arrays(view, event)
    gone = set(zip(*(end.tolist() for end in past.removed()[:2]), strict=True))
    standing = set(zip(*(end.tolist() for end in past.edges()[:2]), strict=True))
    prices = past.prices()
    ends = [arrays.get(end, getattr(view.table, end)[view.drawn]).tolist() for end in ("source", "target")]
    assert len(ends[0]) == len(arrays["state"]) and gone | standing == set(zip(*ends, strict=True))
    for place, (u, v) in enumerate(zip(*ends, strict=True)):
        state = arrays["state"][place]
        known = past.evidence(u, v)
        assert state == (REMOVED if (u, v) in gone else GUARDED if known.guarded else 0)
        assert (arrays["successes"][place], arrays["failures"][place]) == (known.successes, known.failures)
        if (u, v) in standing:
            assert arrays["price"][place] == pytest.approx(prices[v, u], rel=1e-3)
    there = arrays["component"] != timeline.NOWHERE
    assert there.sum() == len(past) and same_groups(arrays["component"][there], past.parts())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_state_at_an_event_is_that_of_replaying_the_events(policy):
    memory = lived(policy)
    memory.restore()
    memory.remove(*(int(end[3]) for end in memory.edges()[:2]))
    last = len(memory.events().sequence)
    for event in [0, 1, 2, 17, last // 2, last - 1, last]:
        check_state(memory, event)


def test_so_it_is_where_nodes_edges_and_walks_were_added_between_events():
    memory = sgm.SparseGraphicalMemory(*world(), policy="guarded", **SETTINGS)
    for _ in life(memory, 80):
        pass
    assert "walked" in memory.events().kind
    for event in range(0, len(memory.events().sequence) + 1, 6):
        check_state(memory, event)


def test_edges_that_nearer_nodes_have_pushed_out_since_are_shown_in_the_past():
    memory = plane(20, k=3)
    live_for(memory, 10)
    points = np.random.default_rng(1).uniform(0, 10, (40, 2)).astype(np.float32)
    memory.extend(points, attributes={"position": points})
    live_for(memory, 10)
    for event in (0, 5, 10, 15):
        check_state(memory, event)


def test_the_past_can_be_shown_only_as_far_as_it_is_kept():
    view = View(lived())
    last = timeline.event_range(view.memory)[1]
    with pytest.raises(sgm.InputError, match=f"events 0 to {last}"):
        timeline.state_arrays(view, last + 1)
    then = timeline.past(view, 5)
    assert len(then) == len(view) and then.places is view.places


# -- another memory ----------------------------------------------------------------------------------------------


def test_two_memories_of_one_stream_are_compared_edge_by_edge():
    before, after = plane(policy=sgm.Belief(threshold=0.3)), plane(policy=sgm.Belief(threshold=0.3))
    ends = [tuple(int(end[place]) for end in after.edges()[:2]) for place in (0, 5, 9)]
    after.remove(*ends[0])
    after.record(*ends[1], True)
    told = compare(View(before), View(after), ("a.sgm", "b.sgm"))
    assert told["same_stream"] and told["counts"] == {"added": 0, "removed": 1, "repriced": 1, "nodes": 0}
    assert told["removed"] == [list(ends[0])] and told["repriced"][0][:2] == list(ends[1])
    assert told["repriced"][0][2] > told["repriced"][0][3]
    back = compare(View(after), View(before), ("b.sgm", "a.sgm"))
    assert back["added"] == [list(ends[0])] and back["text"].startswith("From b.sgm to a.sgm: 1 edges added")


def test_memories_of_other_streams_are_not_compared_and_the_sentence_says_why():
    told = compare(View(plane(seed=0)), View(plane(seed=1)), ("a", "b"))
    assert not told["same_stream"] and "embeddings" in told["text"]
    merged = sgm.SparseGraphicalMemory(Straight(), tau_a=3.0, tau_p=None, max_dist=4.0)
    merged.extend(plane().embeddings)
    told = compare(View(plane()), View(merged), ("a", "b"))
    assert not told["same_stream"] and "keeps observation" in told["text"]
    told = compare(View(plane()), View(sgm.SparseGraphicalMemory(Straight())), ("a", "b"))
    assert not told["same_stream"] and "empty" in told["text"]


# -- arrays ------------------------------------------------------------------------------------------------------


def test_arrays_come_back_from_the_container_at_aligned_places():
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(3, 2),
        "b": np.arange(5, dtype=np.uint8),
        "c": np.array([], np.uint32),
        "d": np.array([2**32 - 1], np.uint32),
    }
    message = container.pack(arrays, version="v", nodes=3)
    back, facts = container.unpack(message)
    assert facts == {"version": "v", "nodes": 3}
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    header = int.from_bytes(message[4:8], "little")
    assert message[:4] == b"SGMI" and (8 + header) % 8 == 0
    assert all(place["offset"] % 4 == 0 for place in json.loads(message[8 : 8 + header])["arrays"])


def test_short_numbers_are_near_the_exact_ones():
    values = np.array([0.0, 1.0, -3.7, 1e-9, 12345.678, np.inf])
    np.testing.assert_allclose(container.short(values), values, rtol=2e-4)


# -- edges that are there for other reasons ----------------------------------------------------------------------


def test_a_spare_and_a_way_back_say_why_they_are_there():
    memory = lived(SPARES, tries=300, k=2)
    pairs = zip(*(end.tolist() for end in memory.edges()[:2]), strict=True)
    spare = next(pair for pair in pairs if memory.evidence(*pair).spare)
    assert "the guard of cleanup" in answers.edge(View(memory), *spare)["rule"]
    table = np.array([[0, 2], [50, 0]], np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", reversible=True)
    memory.extend([0, 1])
    assert "this memory is reversible" in answers.edge(View(memory), 1, 0)["rule"]
    assert "reversible" not in answers.edge(View(memory), 0, 1)["rule"]


def test_positions_too_large_to_draw_count_as_missing():
    memory = plane()
    places = np.array(memory.attributes["position"], np.float64)
    places[3] = 1e300
    memory.attributes["position"] = places
    view = View(memory)
    assert view.places.unplaced == 1 and np.abs(view.places.xy).max() < 100
