"""The program."""

def run():  # TODO(Zed): call it main: now
    # TODO: not for anybody
    return 1


def load(path):
    # TODO(ana): handle errors
    data = open(path).read()
    # a TODO(ana) without its colon
    return data  # TODO(ana):   and log them   
