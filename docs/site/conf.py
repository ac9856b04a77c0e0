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
html_theme_options = {
    "top_of_page_button": None,
    # Debian's furo has no dark colours where the system asks for them: its compiler of styles drops that rule.
    "light_css_variables": {"color-brand-primary": "#0b62a8", "color-brand-content": "#0b62a8",
                            "color-foreground-muted": "#646776"},
    "dark_css_variables": {
        "color-foreground-primary": "#d6d8dc", "color-foreground-secondary": "#a4a8ae", "color-foreground-muted": "#8e9299",
        "color-foreground-border": "#666a71", "color-background-primary": "#131416", "color-background-secondary": "#1a1c1e",
        "color-background-hover": "#1e2124", "color-background-hover--transparent": "#1e212400",
        "color-background-border": "#303335", "color-background-item": "#444",
        "color-brand-primary": "#7cb8ee", "color-brand-content": "#7cb8ee",
        "color-problematic": "#ee6e75", "color-highlighted-background": "#3d4a1c", "color-highlight-on-target": "#333300",
        "color-guilabel-background": "#08356380", "color-guilabel-border": "#13395f80",
        "color-admonition-background": "#18181a", "color-card-background": "#18181a",
        "color-inline-code-background": "#1a1c1e"},
}
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
