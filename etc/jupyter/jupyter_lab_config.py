"""JupyterLab as ``make lab`` serves it: quiet, offline, and on the course's own kernel."""

c = get_config()  # noqa: F821 - traitlets provides get_config

# Nothing is fetched from the network: no news, no search for updates or extensions.
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
c.LabApp.extension_manager = "readonly"
# Ctrl-C ends at once instead of asking; every notebook was saved as one worked.
c.JupyterApp.answer_yes = True
c.ServerApp.answer_yes = True
# The terminal shows the address, and then only what went wrong.
c.ServerApp.log_level = "ERROR"
c.LabApp.log_level = "ERROR"
# What passes between JupyterLab and a kernel is encrypted, for machines with more than one user.
c.KernelManager.transport_encryption = "auto"
