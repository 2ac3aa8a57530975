// What the script of every page uses. It follows in the same module.
const part = (id) => document.getElementById(id);

/** Make a function that builds elements: attributes by name, `on…` a listener; what is null or false is left out. */
const builder = (create) => (tag, attributes = {}, ...children) => {
  const element = create(tag), given = (value) => value !== null && value !== undefined && value !== false;
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (given(value)) element.setAttribute(name, value);
  }
  element.append(...children.filter(given));
  return element;
};
const make = builder((tag) => document.createElement(tag));

const button = (words, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, words);
