# TODO(bo): pool
