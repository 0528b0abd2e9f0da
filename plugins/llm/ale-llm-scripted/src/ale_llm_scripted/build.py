"""Build a model from its options."""

from ale.protocols import LLM
from ale_llm_scripted.model import ScriptedLLM
from ale_llm_scripted.options import ScriptedOptions
from ale_llm_scripted.play import Play
from ale_llm_scripted.replay import Recording
from ale_llm_scripted.script import read_script


def build(options: ScriptedOptions) -> LLM:
    """Read the script or index the run.

    Raises:
        InputError: the script or the run can't be used; every problem at once.
        StoreError: a recorded episode can't be read.
    """
    lines: Play | Recording
    if options.script is not None:
        script = read_script(options.script, tools=options.tools)
        lines = Play(script, tools=options.tools, name=str(options.script))
    else:
        assert options.replay is not None, "the options have exactly one of the two"
        lines = Recording(options.replay, tools=options.tools)
    return ScriptedLLM(lines, latency_s=options.latency_s, at_end=options.at_end)
