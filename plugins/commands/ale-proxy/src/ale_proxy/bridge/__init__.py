"""``ale bridge``: managers assign tasks and grade them over HTTP, workers take and answer them.

`forms` has what is sent and answered, `assignments` what becomes of a task, `api` the requests, and
`openapi` their description, made from the same table.
"""
