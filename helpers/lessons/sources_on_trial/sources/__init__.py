"""The sources whose claims the course puts on trial: a module each, which names the source and lists its claims.

The file is named as the source's key, with "_" for "-". docs/adding-a-source.md says how to add one.
"""
