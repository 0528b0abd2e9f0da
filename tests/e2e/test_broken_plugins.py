"""A broken package affects only its own components, and is named with its error."""

from collections.abc import Callable
from typing import Any

import pytest

Install = Callable[..., None]

HEAD = """\
from ale.plugin import Component, hookimpl

def build(options, context):
    from ale_agent_oracle.noop import NoopAgent
    return NoopAgent()

"""
AGENT = (
    HEAD
    + """\
@hookimpl
def ale_agents():
    return [Component({name!r}, None, build, summary={summary!r})]
"""
)


@pytest.fixture
def install(workshop: Any) -> Install:
    """Installs a distribution of one module on PYTHONPATH."""
    site = workshop.folder / "site"
    workshop.environ["PYTHONPATH"] = str(site)

    def write(distribution: str, code: str) -> None:
        module = distribution.replace("-", "_")
        info = f"site/{module}-1.5.dist-info"
        workshop.write(f"site/{module}.py", code)
        workshop.write(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n"
        )
        workshop.write(f"{info}/entry_points.txt", f"[ale]\n{module} = {module}\n")

    return write


BROKEN = {
    "acme-raises": "import no_such_module_anywhere\n",
    "acme-exits": "raise SystemExit(7)\n",
    "acme-misspelt": HEAD + "@hookimpl\ndef ale_agent():\n    return []\n",
    "acme-arguments": HEAD + "@hookimpl\ndef ale_agents(config):\n    return []\n",
    "acme-rubbish": HEAD + "@hookimpl\ndef ale_agents():\n    return 'rubbish'\n",
    "acme-nothing": HEAD + "@hookimpl\ndef ale_agents():\n    pass\n",
    "acme-fails": HEAD + "@hookimpl\ndef ale_agents():\n    raise ValueError('no mood')\n",
    "acme-commands": HEAD + "@hookimpl\ndef ale_commands():\n    return [3]\n",
}
SAID = {
    "acme-raises": "ModuleNotFoundError: No module named 'no_such_module_anywhere'",
    "acme-exits": "SystemExit: 7",
    "acme-misspelt": "no such hook: ale_agent; did you mean 'ale_agents'?",
    "acme-arguments": "config",
    "acme-rubbish": "expected a list of Component, got 'rubbish'",
    "acme-nothing": "expected a list of Component, got None",
    "acme-fails": "ValueError: no mood",
    "acme-commands": "expected a list of named click commands, got [3]",
}


@pytest.fixture
def other(workshop: Any) -> None:
    """A run that needs none of the broken ones."""
    workshop.task("t", check="true")
    workshop.config(agent={"type": "noop"})


@pytest.mark.usefixtures("other")
def test_every_command_works_with_broken_packages_installed(
    workshop: Any, install: Install
) -> None:
    for distribution, code in BROKEN.items():
        install(distribution, code)
    listed = workshop.succeeds("plugins")
    for name in ("noop", "local", "tbp", "ipa"):
        assert f" {name} " in listed.out
    for distribution, printed in SAID.items():
        assert distribution in listed.text, distribution
        assert printed in listed.text, distribution
    assert "Traceback" not in listed.text
    for arguments in (("--verbose",), ("acme-raises",)):
        traceback = workshop.ale("plugins", *arguments).out
        assert 'site/acme_raises.py", line 1, in <module>' in traceback
    doctor = workshop.succeeds("doctor")
    assert all(distribution in doctor.text for distribution in BROKEN)
    for arguments in (("--help",), ("run", "--help"), ("check", "run.yaml"), ("run", "run.yaml")):
        workshop.succeeds(*arguments)
    unknown = workshop.ale("dream")
    assert unknown.code == 2
    assert "no such command 'dream'" in unknown.err
    assert "acme-commands may register it" in unknown.err
    assert [episode["reward"] for episode in workshop.episodes().values()] == [1.0]
    workshop.succeeds("show", str(workshop.run))


@pytest.mark.usefixtures("other")
def test_an_unknown_name_lists_the_broken_packages_in_one_line_each(
    workshop: Any, install: Install
) -> None:
    install("acme-raises", "\n\n1 / 0\n")
    done = workshop.ale("run", "run.yaml", "--set", "agent.type=dreamer")
    assert done.code == 2
    assert (
        "agent.type: no agent 'dreamer'; installed: attack, code-attempts, echo, iflow, misaligned"
        in done.err
    )
    assert "acme-raises may register it" in done.err
    assert "ZeroDivisionError: division by zero (traceback: ale plugins acme-raises)" in done.err
    assert "Traceback" not in done.err
    assert not workshop.runs


@pytest.mark.usefixtures("other")
def test_the_full_name_chooses_between_two_components_of_one_name(
    workshop: Any, install: Install
) -> None:
    install("acme-one", AGENT.format(name="twin", summary="The first twin."))
    install("acme-two", AGENT.format(name="twin", summary="The second twin."))
    listed = workshop.ale("plugins", "agent").out
    assert "agent 'twin' is registered twice; write acme-one/twin or acme-two/twin" in listed
    done = workshop.ale("run", "run.yaml", "--set", "agent.type=twin")
    assert done.code == 2
    assert "agent 'twin' is registered twice: write acme-one/twin or acme-two/twin" in done.err
    assert "did you mean" not in done.err
    workshop.succeeds("run", "run.yaml")
    assert "The second twin." in workshop.ale("plugins", "agent", "acme-two/twin").out
    done = workshop.succeeds("run", "run.yaml", "--set", "agent.type=acme-two/twin")
    manifest = (workshop.runs[-1] / "manifest.json").read_text()
    assert '"type": "acme-two/twin"' in manifest
    assert '"acme-two": "1.5"' in manifest


@pytest.mark.usefixtures("other")
def test_a_component_that_cannot_be_built_is_reported(workshop: Any, install: Install) -> None:
    install(
        "acme-unbuildable",
        AGENT.format(name="late", summary="Fails in build.").replace(
            "from ale_agent_oracle.noop import NoopAgent", "import no_such_sdk"
        ),
    )
    done = workshop.ale("run", "run.yaml", "--set", "agent.type=late")
    assert done.code == 2, done.text
    assert "agent 'late' can't be used: No module named 'no_such_sdk'" in done.err
    assert not workshop.runs


@pytest.mark.usefixtures("other")
def test_a_failing_observer_is_reported_once_and_the_run_succeeds(
    workshop: Any, install: Install
) -> None:
    code = HEAD + "@hookimpl\ndef ale_episode_finished(event):\n    raise ValueError('deaf')\n"
    install("acme-observer", code)
    done = workshop.succeeds("run", "run.yaml")
    assert "ValueError: deaf" in done.err
    assert "observer 'acme-observer' failed in ale_episode_finished and was dropped" in done.err
    assert done.err.count("ValueError: deaf") == 1
