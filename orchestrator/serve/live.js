"use strict";
// Asks for the parts of this page that have changed, and changes only what differs in them: a reader's place, selection
// and focus stay. It rests while nobody looks.

const { state, every } = document.body.dataset;
const lost = document.getElementById("lost");
let timer = 0;
let asking = false;

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.nodeName === "svg") {
    old.replaceWith(fresh);
  } else if (old.nodeType !== Node.ELEMENT_NODE) {
    old.data = fresh.data;
  } else {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    children(old, fresh);
  }
}

function children(old, fresh) {
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((node, k) => (k < before.length ? morph(before[k], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

function take(parts) {
  for (const [name, [version, html]] of Object.entries(parts)) {
    const held = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    const fresh = document.createElement("template");
    fresh.innerHTML = html; // the server escapes every text, and its policy runs no script but this one
    children(held, fresh.content);
    held.dataset.version = version;
  }
}

async function look() {
  if (asking) return;
  asking = true;
  const seen = [...document.querySelectorAll("[data-part]")].map(({ dataset }) => `${dataset.part}:${dataset.version}`);
  try {
    const address = `${state}?seen=${encodeURIComponent(seen.join(","))}`;
    const answer = await fetch(address, { signal: AbortSignal.timeout(20000) });
    if (!answer.ok) throw new Error(answer.statusText);
    const { title, parts } = await answer.json();
    document.title = title;
    take(parts);
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
  asking = false;
  rest();
}

function rest() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, Number(every));
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
rest();
