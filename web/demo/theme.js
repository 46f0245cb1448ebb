// Light or dark: what the visitor chose, else what the system says. A plain script, so that it runs before the first paint.
"use strict";
(() => {
    const key = "peregrine.theme";
    const names = ["system", "light", "dark"];
    const dark = matchMedia("(prefers-color-scheme: dark)");
    let chosen = "system";
    try {
        chosen = localStorage.getItem(key) ?? "system";
    } catch {
        // storage is off: the choice lasts as long as the page
    }

    function show() {
        const theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
        document.documentElement.dataset.theme = theme;
        const label = document.getElementById("theme-name");
        if (label) label.textContent = `Theme: ${chosen}`;
        if (label) label.parentElement.title = `Theme: ${chosen}`;
    }

    function next() {
        chosen = names[(names.indexOf(chosen) + 1) % names.length];
        try {
            localStorage.setItem(key, chosen);
        } catch {
            // as above
        }
        show();
    }

    show();
    dark.addEventListener("change", show);
    document.addEventListener("DOMContentLoaded", () => {
        show();
        document.getElementById("theme").addEventListener("click", next);
    });
})();
