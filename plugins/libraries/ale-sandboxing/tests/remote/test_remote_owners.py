"""Which process holds a sandbox, and what it is for, in text that a service stores."""

from typing import Any

from attrs import evolve

from ale_sandboxing.remote.owners import names_of, owner_alive, owner_text
from ale_sandboxing.shell.owner import Owner


def test_an_owner_is_dead_only_where_that_is_known() -> None:
    me = Owner.me()

    def alive(**changes: Any) -> bool:
        return owner_alive(owner_text(evolve(me, **changes)), me)

    assert alive()
    assert not alive(start=me.start + 1)
    assert not alive(boot="another")
    assert alive(machine="another", boot="another")
    assert alive(namespace=1, start=0)
    assert owner_alive(None, me)


def test_job_and_problem_are_named_where_the_tags_tell_them() -> None:
    both = {"run": "a.b_c", "episode": "evaluation-3-fix it/2@crucial-4-0", "other": "x"}
    assert names_of(both) == {"job": "a.b_c", "problem": "fix it/2"}
    assert names_of({"episode": "unknown"}) == {}
