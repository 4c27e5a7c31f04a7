// Small helpers around the DOM: text always goes in as text, so names from a cluster can't become markup.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

// Writing only what changed keeps selections, focus and screen readers calm while data streams in.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Keeps one child per item, in order; `create` makes a child once, `update` refreshes it every time.
export function keyed(container, items, keyOf, create, update) {
  const existing = new Map([...container.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, position) => {
    const key = keyOf(item);
    let child = existing.get(key);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key;
    }
    existing.delete(key);
    update(child, item);
    if (container.children[position] !== child) {
      container.insertBefore(child, container.children[position] ?? null);
    }
  });
  for (const child of existing.values()) child.remove();
}

export function part(node, name) {
  return node.querySelector(`[data-part="${name}"]`);
}

// A panel that grew stays that tall, so that what follows it doesn't hop up and down.
export function keepTallest(panel) {
  const height = Math.ceil(panel.getBoundingClientRect().height);
  if (height > (Number.parseFloat(panel.style.minHeight) || 0)) panel.style.minHeight = `${height}px`;
}
