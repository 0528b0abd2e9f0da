# TODO(ana): upstream
