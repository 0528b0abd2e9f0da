"""``ale proxy`` as click sees it; its work is imported when it runs."""

from pathlib import Path
from typing import Any

import click

from ale.commands import PATH


@click.command("proxy")
@click.argument("upstream", metavar="URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8800,
    show_default=True,
    help="0 takes a free port.",
)
@click.option(
    "--run",
    type=PATH,
    metavar="DIR",
    help="Run directory to record to; one that was recorded before is continued. Default: a new "
    "one in ./runs.",
)
@click.option(
    "--idle-s",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds without a request after which a session ends by itself.",
)
@click.option(
    "--session-header",
    default="X-Ale-Session",
    show_default=True,
    help="Request header that names the session; without it, a key is one session.",
)
@click.option(
    "--ask-tokens",
    is_flag=True,
    help="Ask the server for token ids and log-probabilities where the agent does not; its answers "
    "then have fields that the agent did not ask for.",
)
@click.option(
    "--logprobs-mode",
    type=click.Choice(["raw", "processed"]),
    default="raw",
    show_default=True,
    help="Log-probabilities that the server gives: before (raw) or after (processed) temperature "
    "and top_p; raw ones are stored only of requests with temperature 1 and top_p 1.",
)
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="Environment variable with a key that requests to read, score or end a session need, the "
    "current one too; without it, an agent that reaches the proxy can score itself.",
)
@click.option(
    "--config",
    type=PATH,
    metavar="FILE",
    help="Apply the section middleware of this config: skills, hints.",
)
@click.pass_obj
def proxy(registry: Any, /, upstream: str, run: Path | None, **options: Any) -> None:
    """Stand between any agent and its model server, and record what they exchange as episodes.

    URL is that of the model server: OpenAI-compatible, or Anthropic's. Set the agent's base URL to
    the one that is printed. Requests and answers pass unchanged. Each session of the agent becomes
    an episode in a run directory, which `ale show` and `ale collect` read.

    \b
    Examples:
      ale proxy http://127.0.0.1:8000/v1 --port 8800
      ale proxy https://api.openai.com/v1 --run runs/agent --idle-s 60
    """
    from ale_proxy.running import ProxyOptions
    from ale_proxy.running import run as serve

    serve(ProxyOptions(upstream=upstream, run=run, **options), registry, say=click.echo)
