"""Read what people write, strictly: YAML with line numbers, into attrs classes.

A library, not a plugin: it knows nothing of `ale`. Its rooms:

- `problems`: what is wrong, in one shape, and the error that carries all of it;
- `node`: a value with its file and line;
- `reading`: YAML into nodes;
- `structuring`: nodes into attrs classes, every problem at once.

Nothing is imported here: who only raises an error need not wait for YAML.
"""
