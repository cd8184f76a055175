/** Access to elements of the page. */

export const byId = (id) => document.getElementById(id);

/** Create an element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
