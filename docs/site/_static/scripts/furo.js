/* The script of the site: the switch of themes, and the section that is read in the table of contents. It replaces
 * furo's own script, which is a module that needs a bundler and which Debian installs without one. */
"use strict";

(() => {
    const themes = ["auto", "light", "dark"];

    // Pages of files may have no storage.
    function stored() {
        try { return localStorage.getItem("theme"); } catch { return null; }
    }

    function setTheme(name) {
        document.body.dataset.theme = name;
        try { localStorage.setItem("theme", name); } catch { /* the theme then lasts for this page */ }
        for (const button of document.querySelectorAll(".theme-toggle")) {
            button.title = `Theme: ${name}`;
            button.setAttribute("aria-label", button.title);
        }
    }

    // Each press changes what is seen, and the third one follows the system again.
    function nextTheme() {
        const dark = matchMedia("(prefers-color-scheme: dark)").matches;
        const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
        setTheme(order[(order.indexOf(document.body.dataset.theme) + 1) % order.length]);
    }

    // Marks the link of the last section whose heading has been scrolled to the upper third of the window.
    function followSections() {
        const links = [...document.querySelectorAll(".toc-tree a[href^='#']")].map((link) => ({
            item: link.parentElement, section: link.hash ? document.getElementById(decodeURIComponent(link.hash.slice(1))) : document.body,
        })).filter((link) => link.section);
        let waiting = false;
        const mark = () => {
            waiting = false;
            const above = links.filter((link) => link.section.getBoundingClientRect().top < innerHeight / 3);
            const current = above[above.length - 1] || links[0];
            for (const link of links) link.item.classList.toggle("scroll-current", link === current);
        };
        addEventListener("scroll", () => {
            if (!waiting) requestAnimationFrame(mark);
            waiting = true;
        }, { passive: true });
        if (links.length) mark();
    }

    // A browser does not read the text of other files for the summaries of a search.
    if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS === "object") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

    addEventListener("DOMContentLoaded", () => {
        document.documentElement.classList.remove("no-js");
        setTheme(themes.includes(stored()) ? stored() : "auto");
        for (const button of document.querySelectorAll(".theme-toggle")) button.addEventListener("click", nextTheme);
        followSections();
    });
})();
