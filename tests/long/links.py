"""Open every link of every lesson, and say which lead nowhere. It needs a network.

python -m tests.long.links
"""

import sys
import urllib.error
import urllib.request

from helpers.lesson import sources
from tests.test_links import LESSONS, links


def main() -> int:
    places: dict[str, set[str]] = {}
    for name in LESSONS:
        for address in links(name):
            places.setdefault(address, set()).add(name[:2])
    for key, about in sources.every().items():
        if "url" in about:
            places.setdefault(about["url"], set()).add(key)
    lost = 0
    for done, (address, names) in enumerate(sorted(places.items()), start=1):
        asked = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
        try:
            with urllib.request.urlopen(asked, timeout=20):
                continue
        except (urllib.error.URLError, TimeoutError) as problem:
            lost += 1
            print(f"{done} of {len(places)}: {address} ({', '.join(sorted(names))}): {problem}", flush=True)
    print(f"{len(places)} links, {lost} lead nowhere")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
