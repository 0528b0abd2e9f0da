"""A transparent proxy in front of a model server that records what passes as episodes.

Read `forwarding` first: a request is sent on as it came, its answer comes back as it came, and an
`Exchange` reads both on the side. `apis` has a reader for each API; `conversation` makes turns of
what was read, `sessions` and `episodes` episodes of the turns. `bridge` and
`manager` are another way to episodes: tasks that are assigned, answered and graded.
"""
