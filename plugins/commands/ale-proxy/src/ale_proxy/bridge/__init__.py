"""``ale workers bridge``: over HTTP, managers assign tasks and grade them, workers answer them.

`operations` is the table of requests, and `forms` has what is sent and answered; routes (`api`) and
document (`openapi`) are made from these. `assignments` has what becomes of a task.
"""
