from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peer.mesh.timers import Timer, TimerTable

operations = st.lists(
    st.tuples(
        st.sampled_from(["set", "earlier", "stop", "expire", "overdue"]), st.sampled_from(Timer), st.integers(0, 20)
    ),
    max_size=60,
)


@given(operations)
def test_the_table_agrees_with_a_plain_dictionary(steps):
    table, plain = TimerTable(), {}
    for what, timer, at in steps:
        if what == "set":
            table.set(timer, at)
            plain[timer] = at
        elif what == "earlier":
            table.set_earlier(timer, at)
            plain[timer] = min(at, plain.get(timer, at))
        elif what == "stop":
            table.stop(timer)
            plain.pop(timer, None)
        elif what == "overdue":
            table.overdue_to(at)
            plain = {t: max(v, at) for t, v in plain.items()}
        else:
            due = sorted(t for t, v in plain.items() if v <= at)
            assert table.expired(at) == due
            for t in due:
                del plain[t]
        assert table.next_timeout() == min(plain.values(), default=None)
        assert {t: table.at(t) for t in Timer if table.at(t) is not None} == plain
