[ "$WHO" = me ] && [ ! -e /tests/test.sh ] && [ ! -e /logs/verifier/reward.txt ] && touch ready
