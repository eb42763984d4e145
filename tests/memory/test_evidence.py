"""Evidence in columns behaves like a plain dict of evidence."""

import copy
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sgm.memory.evidence import EvidenceColumns, evidence_of, row_of
from sgm.memory.policies import Evidence

COUNTS = st.one_of(st.integers(0, 5), st.integers(2**31 - 2, 2**53 - 1))
EVIDENCE = st.builds(
    Evidence, COUNTS, COUNTS, COUNTS, st.one_of(st.none(), COUNTS), guarded=st.booleans(), spare=st.booleans()
)
EDGES = st.integers(0, 60)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), EDGES, EVIDENCE),
        st.tuples(st.just("drop"), st.lists(EDGES, max_size=5), st.none()),
        st.tuples(st.just("update"), st.dictionaries(EDGES, EVIDENCE, max_size=30), st.none()),
    ),
    max_size=12,
)


@given(CHANGES)
def test_columns_are_like_a_dict(changes):
    columns, model = EvidenceColumns(), {}
    for what, first, known in changes:
        if what == "set":
            columns[first] = model[first] = known
        elif what == "drop":
            columns.drop(first)
            for edge in first:
                model.pop(edge, None)
        else:
            columns.update(first)
            model.update(first)
        assert list(columns.items()) == list(model.items()) and len(columns) == len(model)
    for one in (columns, columns.copy(), copy.deepcopy(columns), pickle.loads(pickle.dumps(columns))):
        assert one == model and list(one) == list(model)
        assert [one.get(edge) for edge in range(99)] == [model.get(edge) for edge in range(99)]
        assert [edge in one for edge in range(-3, 99)] == [edge in model for edge in range(-3, 99)]


@given(st.dictionaries(EDGES, EVIDENCE), st.lists(st.integers(0, 90), max_size=40))
def test_many_edges_are_read_as_one_by_one(model, edges):
    columns = EvidenceColumns(model)
    rows = columns.rows_of(edges)
    assert [None if row is None else evidence_of(row) for row in rows] == [model.get(edge) for edge in edges]
    tried, known = columns.of(np.array(edges, np.int64))
    assert tried.tolist() == [place for place, edge in enumerate(edges) if edge in model]
    held = [model[edges[place]] for place in tried]
    assert known.edge.tolist() == [edges[place] for place in tried]
    assert [known.successes.tolist(), known.failures.tolist()] == [
        [one.successes for one in held],
        [one.failures for one in held],
    ]
    assert known.removed.tolist() == [one.removed_at is not None for one in held]
    assert known.guarded.tolist() == [one.guarded for one in held]
    assert columns.removed().tolist() == [edge for edge, one in model.items() if one.removed_at is not None]
    assert columns.spares() == [edge for edge, one in model.items() if one.spare]
    assert all(evidence_of(row_of(one)) == one for one in model.values())


def test_nothing_is_allocated_before_the_first_try():
    assert EvidenceColumns().nbytes == 0
