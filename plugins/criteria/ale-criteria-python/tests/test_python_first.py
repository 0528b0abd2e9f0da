async def test_a(grade):
    s = await grade("def f(x):\n    return x+1", "assert f(1) == 2", "assert f(2) == 4")
    print(s.value, s.detail)
    s = await grade("def f(x):\n    return x+1", "assert f(1) == 2")
    print(s.value, s.detail)
    assert s.passed
