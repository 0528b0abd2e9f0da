"""``ale workers manage``: assigns tasks through a bridge, waits, grades, and says why.

`client` asks the bridge, `grading` gives score and text, `running` goes through the tasks, and
`gain` measures what feedback is worth.
"""
