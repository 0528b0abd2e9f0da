"""Skills: short texts that help with tasks of a kind.

`store` keeps them in one SQLite file and finds those for a task, `middleware` adds them to
conversations, `proposing` asks a model for new ones where feedback was bad, and `reviewing`
measures what each was worth and retires what does not help.
"""
