"""What a run does with signals; tests/e2e/test_signals.py sends them to real runs."""

import asyncio
import signal

import pytest

from ale._run.interrupt import Interrupt


async def test_a_ctrl_c_while_python_s_own_handler_is_active_for_a_moment_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    loop, interrupt = asyncio.get_running_loop(), Interrupt()
    remove = loop.remove_signal_handler
    pressed = []

    def removed(number: int) -> bool:
        done = remove(number)
        if number == signal.SIGINT and not pressed:
            pressed.append(number)
            raise KeyboardInterrupt  # as that handler does; here no other thread has to take it
        return done

    try:
        with interrupt.listening():
            interrupt.on_interrupt()
            monkeypatch.setattr(loop, "remove_signal_handler", removed)
        signal.raise_signal(signal.SIGINT)  # nor does a later one prevent the summary
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed
    assert interrupt.exit_code == 130
