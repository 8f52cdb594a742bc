"""A Chromium to look at pages with: the one that is there, or one from a package registry.

``python -m tests.report.browser`` fetches one where there is none (what ``make test`` does), and says where it is.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "@sparticuz/chromium@153"
"""A Chromium of 60 MB for Linux on x86-64, packed for small containers, in the npm registry."""

FOLDER = Path(os.environ.get("GRAPHOPT_BROWSER_DIR", Path(sys.prefix) / "share" / "graphopt-browser"))
_KNOWN = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")


def find() -> str | None:
    """The browser's executable: ``GRAPHOPT_BROWSER``, one on the path, playwright's own, the fetched one."""
    named = os.environ.get("GRAPHOPT_BROWSER")
    if named:
        return named
    on_path = next(filter(None, map(shutil.which, _KNOWN)), None)
    if on_path:
        return on_path
    return next((str(path) for path in (_of_playwright(), FOLDER / "chromium") if path and path.is_file()), None)


def fetch() -> None:
    """Get one, by the ordinary clients of the registries; raises what they raise."""
    if shutil.which("npm") and sys.platform == "linux" and platform.machine() == "x86_64":
        FOLDER.mkdir(parents=True, exist_ok=True)
        npm = ("npm", "install", "--prefix", FOLDER, "--ignore-scripts", "--no-audit", "--no-fund", "--silent", PACKAGE)
        subprocess.run(npm, check=True, timeout=300)
        # The package unpacks itself into the temporary folder.
        unpack = "import chromium from '@sparticuz/chromium'; await chromium.executablePath();"
        node = ("node", "--input-type=module", "-e", unpack)
        subprocess.run(node, check=True, timeout=300, cwd=FOLDER, env={**os.environ, "TMPDIR": str(FOLDER)})
    else:
        install = (sys.executable, "-m", "playwright", "install", "--no-shell", "chromium")
        subprocess.run(install, check=True, timeout=600)


def _of_playwright() -> Path | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path)


if __name__ == "__main__":
    if find() is None:
        try:
            fetch()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no browser could be fetched, its tests will be skipped: {error}", file=sys.stderr)
    print(find() or "no browser")
