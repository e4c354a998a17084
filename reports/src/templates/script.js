"use strict";
(() => {
  const root = document.documentElement;

  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  // A page opened from a file may have no storage; the theme then lasts as long as the page.
  const stored = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("spectune-theme");
      localStorage.setItem("spectune-theme", value);
    } catch { return null; }
  };
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = "theme: " + theme;
  };
  button.hidden = false;
  show(themes.includes(stored()) ? stored() : "auto");
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    stored(next);
    show(next);
  });

  const folds = [...document.querySelectorAll("details")];
  const unfold = document.getElementById("unfold");
  unfold.hidden = folds.length === 0;
  unfold.addEventListener("click", () => {
    const open = unfold.textContent === "unfold all";
    for (const fold of folds) fold.open = open;
    unfold.textContent = open ? "fold all" : "unfold all";
  });
  // A link to something that is folded away unfolds it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(reveal));
  reveal();
  addEventListener("beforeprint", () => { for (const fold of folds) fold.open = true; });

  // A table that is wider than its place says so.
  const hint = (scroll) => {
    const more = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft > 4;
    const words = scroll.previousElementSibling;
    words.hidden = scroll.scrollWidth <= scroll.clientWidth + 4;
    words.textContent = more ? "more columns to the right →" : "← more columns to the left";
  };
  for (const scroll of document.querySelectorAll(".scroll")) {
    const words = document.createElement("p");
    words.className = "hint";
    words.hidden = true;
    scroll.before(words);
    scroll.addEventListener("scroll", () => hint(scroll), { passive: true });
    new ResizeObserver(() => hint(scroll)).observe(scroll);
  }

  for (const copy of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) continue;
    copy.hidden = false;
    copy.addEventListener("click", () => {
      navigator.clipboard.writeText(copy.nextElementSibling.textContent).then(
        () => { copy.textContent = "copied"; },
        () => { copy.textContent = "not allowed"; },
      );
    });
  }

  const key = (row, column, numeric) => {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent.trim();
    return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.textContent = head.textContent;
      head.replaceChildren(sort);
      const numeric = head.dataset.kind === "number";
      sort.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [key(row, column, numeric), row]);
        rows.sort(([first], [second]) => {
          if (!numeric) return (up ? 1 : -1) * first.localeCompare(second, "en", { numeric: true });
          // What was not measured goes last either way.
          if (Number.isNaN(first) || Number.isNaN(second)) return Number.isNaN(first) - Number.isNaN(second);
          return up ? first - second : second - first;
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
})();
