# Sphinx's settings for the site of the documentation. build.py sets the environment.
import os

project = "weft"
version = release = os.environ["WEFT_VERSION"]
copyright = "the authors of weft; MIT licence"
extensions = ["myst_parser", "breathe", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"weft {version}"
html_static_path = ["_static"]
html_css_files = ["weft.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"top_of_page_button": None}
highlight_language = "none"
primary_domain = "c"
exclude_patterns = ["files", "doxygen"]
nitpicky = False
myst_heading_anchors = 4
breathe_projects = {"weft": os.environ["WEFT_XML"]}
breathe_default_project = "weft"
breathe_domain_by_extension = {"h": "c"}
# A block of commands is copied without its prompts and its output.
copybutton_prompt_text = "$ "
