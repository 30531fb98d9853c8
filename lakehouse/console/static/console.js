// Keeps an open page up to date. The server sends what has changed as server-sent events: texts by
// key, states by key, and a digest for each part of the lake. When the digest of a part that this
// page shows has changed, the page fetches itself and replaces its content. All text that comes
// from the server is set as text, never as markup.
"use strict";

const link = document.getElementById("link");
let digests = JSON.parse(document.body.dataset.digests || "{}");
let isStale = false;
let isLoading = false;

function byKey(name) {
  const found = new Map();
  for (const each of document.querySelectorAll(`[data-${name}]`)) {
    const key = each.dataset[name];
    found.set(key, [...(found.get(key) || []), each]);
  }
  return found;
}

function say(level, text) {
  if (link.textContent !== text) link.textContent = text;
  link.dataset.level = level;
}

function show(changes) {
  const texts = byKey("v");
  for (const [key, text] of Object.entries(changes.v)) {
    for (const each of texts.get(key) || []) each.textContent = text;
  }
  const states = byKey("s");
  for (const [key, [level, text]] of Object.entries(changes.s)) {
    for (const each of states.get(key) || []) {
      each.dataset.level = level;
      each.textContent = text;
    }
  }
  const isOther = ([name, digest]) => name in digests && digests[name] !== digest;
  if (Object.entries(changes.d).some(isOther)) {
    isStale = true;
    reload();
  }
}

// Whether somebody is typing or has selected text, which a new content would take away.
function isBusy() {
  const active = document.activeElement;
  const isTyping = active && active.closest("main") && active.matches("input, select, textarea");
  return isTyping || !document.getSelection().isCollapsed || document.hidden;
}

async function reload() {
  if (!isStale || isLoading || isBusy()) return;
  isLoading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") return location.reload();
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.getElementById("main");
    const focused = document.activeElement && document.activeElement.id;
    const open = new Map([...main.querySelectorAll("details[id]")].map((x) => [x.id, x.open]));
    const left = new Map([...main.querySelectorAll(".scroll")].map((x, n) => [n, x.scrollLeft]));
    main.replaceChildren(...page.getElementById("main").childNodes);
    digests = JSON.parse(page.body.dataset.digests || "{}");
    document.body.dataset.instance = page.body.dataset.instance;
    for (const [id, isOpen] of open) {
      const each = document.getElementById(id);
      if (each) each.open = isOpen;
    }
    main.querySelectorAll(".scroll").forEach((x, n) => (x.scrollLeft = left.get(n) || 0));
    const again = focused && document.getElementById(focused);
    if (again) again.focus({ preventScroll: true });
    isStale = false;
    prepare();
  } catch {
    // The server is away; it is asked again when the stream is back.
  } finally {
    isLoading = false;
  }
}

// Replaces a part of the page that waits for something, whatever somebody does in the others.
async function refresh(part) {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = page.getElementById(part.id);
    if (now && part.isConnected) {
      delete part.dataset.refresh;
      part.replaceChildren(...now.childNodes);
      age();
      if (now.dataset.refresh) part.dataset.refresh = now.dataset.refresh;
    }
  } catch {
    // The server is away; it is asked again.
  }
  if (part.isConnected && part.dataset.refresh) {
    setTimeout(() => refresh(part), Number(part.dataset.refresh));
  }
}

let events;
function connect() {
  events = new EventSource("/events");
  events.addEventListener("hello", (event) => {
    say("ok", "Live");
    if (JSON.parse(event.data).instance !== document.body.dataset.instance) {
      isStale = true; // the server was started again, and forms of this page are no longer valid
      reload();
    }
  });
  events.addEventListener("values", (event) => show(JSON.parse(event.data)));
  events.onerror = () => {
    say("bad", "Connection lost, trying again");
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

// The live page: the lines of a topic or a table, the newest first, until there were enough.
const KEPT_LINES = 200;
let tail;
function follow(list) {
  if (tail) tail.close();
  const status = document.getElementById("tail-status");
  const cell = (row, text, label) => {
    const found = row.insertCell();
    found.textContent = text;
    found.dataset.name = label;
    return found;
  };
  tail = new EventSource(`/live/events${location.search}`);
  tail.addEventListener("ready", () => (status.textContent = "Waiting for the next."));
  tail.addEventListener("note", (event) => (status.textContent = JSON.parse(event.data)));
  tail.addEventListener("lines", (event) => {
    const { lines, left } = JSON.parse(event.data);
    for (const [at, kind, place, key, text] of lines) {
      const row = list.insertRow(0);
      cell(row, at ? new Date(at * 1000).toISOString().slice(11, 23) : "", "Time");
      cell(row, kind, "Kind");
      cell(row, place, "Place");
      cell(row, key, "Key");
      cell(row, text, "Content").className = "said";
    }
    while (list.rows.length > KEPT_LINES) list.deleteRow(-1);
    status.textContent = left ? `${left} more came at once, and are not shown.` : "";
  });
  tail.addEventListener("end", (event) => {
    tail.close();
    status.textContent = JSON.parse(event.data) || "The console has stopped.";
  });
  tail.onerror = () => (status.textContent = "Connection lost, trying again.");
  document.getElementById("tail-stop").onclick = () => {
    tail.close();
    status.textContent = "Stopped. Load the page again to go on.";
  };
}

// "3 s ago" for all times on the page.
const steps = [[60, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
function age() {
  for (const each of document.querySelectorAll("time[data-ago]")) {
    const seconds = (Date.now() - Date.parse(each.dateTime)) / 1000;
    const [, size, unit] = steps.find(([end]) => Math.abs(seconds) < end);
    const count = Math.floor(Math.abs(seconds) / size);
    const text = seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
    if (each.textContent !== text) each.textContent = text;
  }
}

// Filters by name and state while somebody types, without asking the server. The address follows.
function filter(form) {
  const items = [...document.querySelectorAll(form.dataset.filter)];
  const count = form.querySelector("[data-count]");
  const state = form.elements.state;
  function apply() {
    const text = form.elements.q.value.trim().toLowerCase();
    let shown = 0;
    for (const item of items) {
      const level = item.querySelector(".state") && item.querySelector(".state").dataset.level;
      const fits = item.dataset.name.toLowerCase().includes(text);
      item.hidden = !fits || Boolean(state && state.value && state.value !== level);
      shown += item.hidden ? 0 : 1;
    }
    if (count) count.textContent = text || (state && state.value) ? `${shown} of ${items.length} shown` : "";
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const address = location.pathname + (query.size ? `?${query}` : "");
    if (address !== location.pathname + location.search) history.replaceState(null, "", address);
    drawEdges();
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
}

// The lines between the nodes of the flow map.
function drawEdges() {
  const map = document.getElementById("map");
  if (!map) return;
  const svg = map.querySelector(".edges");
  const frame = map.getBoundingClientRect();
  const nodes = new Map();
  for (const each of map.querySelectorAll(".node:not([hidden])")) nodes.set(each.dataset.node, each);
  const paths = [];
  if (getComputedStyle(svg).display !== "none") {
    const places = new Map([...nodes].map(([name, each]) => [name, each.getBoundingClientRect()]));
    for (const [name, each] of nodes) {
      for (const source of JSON.parse(each.dataset.reads)) {
        if (!places.has(source)) continue;
        const from = places.get(source);
        const to = places.get(name);
        const y1 = from.top + from.height / 2 - frame.top;
        const y2 = to.top + to.height / 2 - frame.top;
        const isSame = Math.abs(from.left - to.left) < 8; // a table reads one of its own stage
        const x1 = (isSame ? from.left : from.right) - frame.left;
        const x2 = to.left - frame.left;
        const bend = isSame ? 22 : Math.max((x2 - x1) / 2, 20);
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        const middle = isSame ? [x1 - bend, x2 - bend] : [x1 + bend, x2 - bend];
        path.setAttribute("d", `M${x1} ${y1} C${middle[0]} ${y1} ${middle[1]} ${y2} ${x2} ${y2}`);
        path.dataset.from = source;
        path.dataset.to = name;
        paths.push(path);
      }
    }
  }
  svg.replaceChildren(...paths);
}

// Shows from where the node comes that has the focus or the pointer, and where its rows go.
function light(name) {
  const map = document.getElementById("map");
  const paths = [...map.querySelectorAll(".edges path")];
  const lit = new Set(name ? [name] : []);
  const follow = (start, here, there) => {
    const todo = [start];
    const seen = new Set(todo);
    while (todo.length) {
      const next = todo.pop();
      for (const path of paths) {
        if (path.dataset[here] !== next) continue;
        path.classList.add("lit");
        lit.add(path.dataset[there]);
        if (!seen.has(path.dataset[there])) todo.push(path.dataset[there]);
        seen.add(path.dataset[there]);
      }
    }
  };
  paths.forEach((path) => path.classList.remove("lit"));
  if (name) {
    follow(name, "to", "from");
    follow(name, "from", "to");
  }
  map.classList.toggle("dim", Boolean(name) && lit.size > 1);
  for (const each of map.querySelectorAll(".node")) each.classList.toggle("lit", lit.has(each.dataset.node));
}

// Called for each new content of the page.
function prepare() {
  document.querySelectorAll("form[data-filter]").forEach(filter);
  for (const each of document.querySelectorAll("select[data-submit]")) {
    each.addEventListener("change", () => each.form.requestSubmit());
  }
  const map = document.getElementById("map");
  if (map) {
    const nodeOf = (event) => event.target.closest && event.target.closest(".node");
    for (const [begin, end] of [["mouseover", "mouseout"], ["focusin", "focusout"]]) {
      map.addEventListener(begin, (event) => nodeOf(event) && light(nodeOf(event).dataset.node));
      map.addEventListener(end, (event) => nodeOf(event) && light(null));
    }
    new ResizeObserver(drawEdges).observe(map);
  }
  const pending = document.querySelector("[data-refresh]");
  if (pending) setTimeout(() => refresh(pending), Number(pending.dataset.refresh));
  const list = document.getElementById("tail");
  if (list) follow(list);
  const statement = document.getElementById("statement");
  if (statement) {
    statement.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) statement.form.requestSubmit();
    });
  }
  if (document.querySelector("[data-poll]")) {
    setTimeout(() => {
      isStale = true;
      reload();
    }, 2000);
  }
  drawEdges();
  age();
}

const current = document.querySelector(".top nav [aria-current]");
if (current) current.parentElement.scrollLeft = current.offsetLeft - 60; // on a narrow screen
prepare();
connect();
setInterval(age, 1000);
setInterval(reload, 1000); // when somebody was busy before
document.addEventListener("visibilitychange", reload);
addEventListener("pagehide", () => {
  events.close();
  if (tail) tail.close();
});
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  connect();
  if (tail) follow(document.getElementById("tail"));
});
