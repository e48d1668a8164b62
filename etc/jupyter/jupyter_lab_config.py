"""JupyterLab as ``make lab`` serves it: quiet, offline, and on the course's own kernel."""

from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class Notebooks(AsyncLargeFileManager):
    """A notebook says of its language what this machine's kernel will say: JupyterLab has nothing to put in, and a
    notebook that was only looked at needs no saving."""

    async def get(self, path: str, content: bool = True, *args: Any, **kwargs: Any) -> Any:
        model = await super().get(path, content, *args, **kwargs)
        if content and model["type"] == "notebook":
            about = model["content"]["metadata"]
            if about.get("kernelspec", {}).get("name") == "python3":
                about["language_info"] = dict(IPythonKernel.language_info)
        return model


c = get_config()  # noqa: F821 - traitlets provides get_config

# Names and states of widgets for a screen reader, and how the course's output looks.
c.LabApp.extra_labextensions_path = [str(Path(__file__).resolve().parent / "labextensions")]
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
c.ServerApp.contents_manager_class = Notebooks
# What passes between JupyterLab and a kernel is encrypted, for machines with more than one user.
c.KernelManager.transport_encryption = "auto"
