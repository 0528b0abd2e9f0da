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
    help="Which log-probabilities the server gives; raw ones are stored only of requests with "
    "temperature 1 and top_p 1.",
)
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="Requests about sessions need the key in this environment variable, those about current "
    "too; without it, an agent that reaches the proxy can score itself.",
)
@click.option(
    "--config",
    type=PATH,
    metavar="FILE",
    help="Apply the section middleware of this config: skills, hints.",
)
@click.pass_obj
def proxy(registry: Any, /, upstream: str, run: Path | None, **options: Any) -> None:
    """Record what an agent asks a model, from between the two.

    URL is that of an OpenAI-compatible server, or of Anthropic's. Requests and answers pass
    unchanged; each session becomes an episode. The URL for the agent is printed first, then the run
    directory.

    \b
    Examples:
      ale proxy http://127.0.0.1:8000/v1 --port 8800
      ale proxy https://api.openai.com/v1 --run runs/agent --idle-s 60
    """
    from ale_proxy.running import ProxyOptions
    from ale_proxy.running import run as serve

    serve(ProxyOptions(upstream=upstream, run=run, **options), registry, say=click.echo)
