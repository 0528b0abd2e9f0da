"""``ale proxy``, ``bridge`` and ``manage`` as click sees them; their work is imported later."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ale.commands import PATH, allow_host_option, port_option


def _header(_: click.Context, __: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", value):
        raise click.BadParameter(f"'{value}' can't be the name of a header; X-Ale-Session can")
    return value


_SHARED = (
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Address to listen at; one that others can reach needs --key-env.",
    ),
    allow_host_option,
    click.option(
        "--run",
        type=PATH,
        metavar="DIR",
        help="Run directory to record to; one that was recorded before is continued. Default: a "
        "new one in ./runs.",
    ),
    click.option(
        "--idle-s",
        type=click.FloatRange(0, min_open=True),
        default=600.0,
        show_default=True,
        help="Seconds without a request after which a session ends by itself.",
    ),
    click.option(
        "--session-header",
        default="X-Ale-Session",
        show_default=True,
        callback=_header,
        help="Request header that names the session; without it, requests with the same key "
        "belong to one session.",
    ),
    click.option(
        "--ask-tokens",
        is_flag=True,
        help="Ask the server for token ids and log-probabilities if the agent does not; the "
        "answers then have fields that the agent did not ask for.",
    ),
    click.option(
        "--logprobs-mode",
        type=click.Choice(["raw", "processed"]),
        default="raw",
        show_default=True,
        help="Log-probabilities that the server gives: before (raw) or after (processed) "
        "temperature and top_p; raw ones are stored only for requests with temperature 1 and "
        "top_p 1.",
    ),
    click.option(
        "--config",
        type=PATH,
        metavar="FILE",
        help="Apply the sections middleware and observers of this config: skills, hints, an audit.",
    ),
)


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both commands: where to listen, and what is recorded and how."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command("proxy")
@click.argument("upstream", metavar="URL")
@_shared
@port_option(8800)
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="Environment variable with the key that is needed to read, score or end a session, the "
    "current one included; without it, an agent that reaches the proxy can score itself.",
)
@click.pass_obj
def proxy(registry: Any, /, upstream: str, run: Path | None, **options: Any) -> None:
    """Stand between any agent and its model server, and record what they exchange as episodes.

    URL is that of the model server: OpenAI-compatible, or Anthropic's. Set the agent's base URL to
    the one that is printed. Requests and answers pass unchanged. Each session of the agent becomes
    an episode in a run directory, which `ale show` and `ale data collect` read.

    \b
    Examples:
      ale proxy http://127.0.0.1:8000/v1 --port 8800
      ale proxy https://api.openai.com/v1 --run runs/agent --idle-s 60
    """
    from ale_proxy.running import ProxyOptions
    from ale_proxy.running import run as serve

    serve(ProxyOptions(upstream=upstream, run=run, **options), registry, say=click.echo)


workers = click.Group("workers")


@workers.command("bridge")
@_shared
@port_option(8100)
@click.option(
    "--upstream",
    default="",
    metavar="URL",
    help="Also be a proxy of this model server: what a worker asks it for a task is recorded as "
    "turns of the task's episode.",
)
@click.option(
    "--lease-s",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds after which a task that was taken but not handed in is given out again; each "
    "request of its session to a model renews this time.",
)
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="Environment variable with the key that requests of managers need, and those of workers "
    "too if they have no key of their own.",
)
@click.option(
    "--worker-key-env",
    metavar="VARIABLE",
    help="Environment variable with the key that requests of workers need; it can neither assign "
    "nor grade.",
)
@click.pass_obj
def bridge(
    registry: Any,
    /,
    upstream: str,
    run: Path | None,
    lease_s: float,
    worker_key_env: str | None,
    **options: Any,
) -> None:
    """Let managers assign tasks and grade them, and workers take and answer them, over HTTP.

    Each graded task becomes an episode of the run directory. A task that was assigned but not
    graded stays open when the bridge ends, and is open again in a bridge with the same --run. The
    bridge's URL is printed first, then the run directory; URL/openapi.json describes the requests.

    \b
    Examples:
      ale workers bridge --run runs/team
      ale workers bridge --run runs/team --upstream http://127.0.0.1:8000/v1 --key-env MANAGER_KEY
    """
    from ale_proxy.bridge.running import BridgeOptions
    from ale_proxy.bridge.running import run as serve
    from ale_proxy.running import ProxyOptions

    proxy = ProxyOptions(upstream=upstream, run=run, **options)
    chosen = BridgeOptions(proxy=proxy, lease_s=lease_s, worker_key_env=worker_key_env)
    serve(chosen, registry, say=click.echo)


@workers.command("manage")
@click.argument("config", type=PATH)
@click.option(
    "--bridge",
    "url",
    default="http://127.0.0.1:8100",
    show_default=True,
    metavar="URL",
    help="The bridge that workers take tasks from.",
)
@click.option(
    "--name",
    help="Name of these assignments; the name of earlier ones continues them. Default: a new one.",
)
@click.option(
    "--rollouts",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How often each task is assigned.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Maximum number of assignments that are open at the same time.",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Seconds after which an assignment without a result is ended without a score.",
)
@click.option(
    "--details",
    is_flag=True,
    help="If no model writes feedback, give what the criteria say as feedback. This may give "
    "answers away.",
)
@click.option("--worker", help="Assign to this worker. Default: to any.")
@click.option("--key-env", metavar="VARIABLE", help="Environment variable with the manager's key.")
@click.option(
    "--gain",
    is_flag=True,
    help="For training the manager: each task is attempted again with the feedback of `llm` and "
    "without any, and the difference of the scores is the reward of the feedback's session at the "
    "`ale proxy` that `llm` has as its base_url.",
)
@click.option(
    "--proxy-key-env",
    metavar="VARIABLE",
    help="Environment variable with the key that this proxy needs for scores.",
)
@click.pass_obj
def manage(registry: Any, /, config: Path, url: str, **options: Any) -> None:
    """Assign the tasks of CONFIG through a bridge, grade the results and say why.

    CONFIG has these sections: `tasks`; `llm`, a model that grades tasks without criteria and writes
    the feedback; `sandbox`, where criteria run; and `plugins`. Any other is refused. Without `llm`,
    the feedback is a score.

    \b
    Examples:
      ale workers manage manager.yaml --bridge http://127.0.0.1:8100 --rollouts 4
      ale workers manage manager.yaml --rollouts 8 --gain
    """
    from ale_proxy.manager.running import ManagerOptions, run

    run(ManagerOptions(config=config, bridge=url, **options), registry, say=click.echo)
