/* Reports: sorts tables, reads charts, plays the flights of a menu, and prepares the page for the printer. */
const collator = new Intl.Collator("en", { numeric: true });

/** Make the headings of a table buttons that sort its rows, first ascending, then descending. */
function makeSortable(table) {
  const [body] = table.tBodies;
  for (const heading of table.tHead.rows[0].cells) {
    if (!heading.textContent.trim()) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.onclick = () => {
      const isDescending = heading.ariaSort === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      body.append(...sortRows([...body.rows], heading.cellIndex, isDescending ? -1 : 1));
    };
  }
}

/** Return rows in the order of a column: by their data-value if any has one, else by text; empty cells come last. */
function sortRows(rows, column, sign) {
  const isNumeric = rows.some(({ cells }) => "value" in cells[column].dataset);
  const keys = new Map(
    rows.map((row) => {
      const { dataset, textContent } = row.cells[column];
      return [row, isNumeric ? Number.parseFloat(dataset.value ?? "NaN") : textContent.trim()];
    }),
  );
  const isEmpty = (key) => key === "" || Number.isNaN(key);
  const compare = isNumeric ? (a, b) => (a === b ? 0 : a < b ? -1 : 1) : collator.compare;
  return rows.sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b);
    return sign * compare(a, b);
  });
}

/** Let the reader point at a chart, or choose a place by arrow keys: its legend then shows the values there. */
function makeReadable(chart) {
  const { places, labels, readings } = JSON.parse(chart.querySelector("script").textContent);
  const plot = chart.querySelector(".plot");
  const [cursor, at] = [plot.querySelector(".cursor"), chart.querySelector(".at")];
  const values = chart.querySelectorAll(".legend output");
  const last = places.length - 1;
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: 0, max: last, step: 1, value: last, autocomplete: "off" });
  input.ariaLabel = `Read ${chart.querySelector("title").textContent}`;
  const read = (index, isShown) => {
    input.value = index;
    input.setAttribute("aria-valuetext", labels[index]);
    plot.classList.toggle("read", isShown);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, `${places[index]}%`);
    at.value = labels[index];
    values.forEach((output, k) => (output.value = readings[k][index]));
    if (!isShown) return;
    const texts = [...chart.querySelectorAll(".legend li")].map((item) => item.textContent);
    input.setAttribute("aria-valuetext", [labels[index], ...texts].join(", "));
  };
  const readAt = ({ clientX }) => {
    const { left, width } = plot.getBoundingClientRect();
    const place = (100 * (clientX - left)) / width;
    const distances = places.map((each) => Math.abs(each - place));
    read(distances.indexOf(Math.min(...distances)), true);
  };
  input.onpointerdown = input.onpointermove = readAt;
  input.oninput = ({ isTrusted }) => isTrusted && !input.matches(":active") && read(input.valueAsNumber, true);
  input.onfocus = () => input.matches(":focus-visible") && read(input.valueAsNumber, true);
  input.onpointerleave = input.onblur = () => read(last, false);
  read(last, false);
  plot.append(input);
}

/** Load the flights of the chosen entry of a menu into its player. */
function makeMenu(menu) {
  const host = menu.querySelector(".equiflock-player");
  const contents = menu.querySelectorAll(":scope > script");
  // The content that the player had at first is in its own element.
  const first = host.querySelector("script").textContent;
  menu.querySelectorAll("input").forEach((input, k) => {
    input.onchange = () => host.player?.load(JSON.parse(contents[k].textContent || first));
  });
}

/** Choose the entry of a menu that a link leads to. */
function chooseEntry(event) {
  const link = event.target.closest?.("a[href^='#']");
  const input = link && document.getElementById(link.hash.slice(1));
  if (input?.type !== "radio") return;
  event.preventDefault();
  input.checked = true;
  input.dispatchEvent(new Event("change"));
  input.closest(".flight-menu").scrollIntoView({ block: "center" });
  input.focus({ preventScroll: true });
}

const listPlayers = () => [...document.querySelectorAll(".equiflock-player")].flatMap(({ player }) => player ?? []);
const light = matchMedia("(prefers-color-scheme: light)");
let folded = [];
let isPrinting = false;

document.querySelectorAll("table").forEach((table) => table.tBodies[0].rows.length > 1 && makeSortable(table));
document.querySelectorAll(".chart.lines").forEach(makeReadable);
document.querySelectorAll(".flight-menu").forEach(makeMenu);
document.addEventListener("click", chooseEntry);
// The players' button changes the theme of the page, too, until the system changes its own.
addEventListener("equiflock-theme", ({ detail }) => (document.documentElement.dataset.theme = detail));
light.addEventListener("change", () => {
  if (isPrinting) return; // browsers print in the light theme
  delete document.documentElement.dataset.theme;
  for (const player of listPlayers()) player.theme = light.matches ? "light" : "dark";
});
addEventListener("beforeprint", () => {
  isPrinting = true;
  folded = [...document.querySelectorAll("details.settings:not([open])")];
  for (const details of folded) details.open = true;
  for (const player of listPlayers()) player.beginPrint();
});
addEventListener("afterprint", () => {
  isPrinting = false;
  for (const details of folded) details.open = false;
  for (const player of listPlayers()) player.endPrint();
});
