"""``ale bridge``: managers assign tasks and grade them over HTTP, workers take and answer them.

`operations` is the table of requests, and `forms` has what is sent and answered; routes (`api`) and
document (`openapi`) are made from these. `assignments` has what becomes of a task.
"""
