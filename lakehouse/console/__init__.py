"""The console: web pages that show a lake while it works, and let people act on it.

`server` serves the pages in a thread, and `guard` protects them. `watcher` reads the lake for all
open pages, `app` shows what it has read, and `pages` reads the rest when a page is opened. It runs
no Spark job: `decisions` starts `lakehouse quarantine` as a process of its own.
"""
