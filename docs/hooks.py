"""Hooks of the site: the front page is README.md, and the list of decisions is what the folder holds."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
REPO = "https://github.com/shunt-ccl/shunt/blob/main/"


def on_config(config):
    decisions = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    folded = {"Decisions": ["decisions/" + name for name in decisions]}  # below the first level it opens and closes
    config.nav = [{"Background": [folded]} if "Decisions" in entry else entry for entry in config.nav]
    return config


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=front_page()))
    return files


def front_page():
    """README.md with its links to pages of docs/ made relative to the site, and all others to the repository."""

    def link(match):
        target = match[1]
        if target.startswith("docs/decisions/") and target.endswith("/"):
            return "](decisions/0001-plans.md)"
        if target.startswith("docs/"):
            return f"]({target.removeprefix('docs/')})"
        return match[0] if "://" in target or target.startswith("#") else f"]({REPO}{target})"

    return re.sub(r"\]\(([^)]+)\)", link, (ROOT / "README.md").read_text())


def on_page_markdown(markdown, page, config, files):
    """Links that leave docs/ lead to the repository."""

    def link(match):
        path = (ROOT / "docs" / page.file.src_uri).parent.joinpath(match[1].split("#")[0]).resolve()
        if path == ROOT / "README.md":  # the front page
            fragment = match[1].partition("#")[2]
            return f"]({'../' * page.file.src_uri.count('/')}index.md{fragment and '#' + fragment})"
        inside = path.is_relative_to(ROOT / "docs") and (path.suffix == ".md" or path.suffix in (".svg", ".png"))
        return match[0] if inside or not path.exists() else f"]({REPO}{path.relative_to(ROOT)})"

    return re.sub(r"\]\((?!https?://|#|mailto:)([^)]+)\)", link, markdown)
