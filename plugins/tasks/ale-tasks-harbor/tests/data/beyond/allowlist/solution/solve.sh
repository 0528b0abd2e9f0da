#!/bin/sh
python3 - <<END
import urllib.error, urllib.request
def asked(host):
    try:
        urllib.request.urlopen(f"http://{host}/", timeout=20)
    except urllib.error.HTTPError as error:
        return str(error.code)
open("said", "w").write(f"{asked('other.invalid')} allowed.invalid {asked('allowed.invalid')}")
END
