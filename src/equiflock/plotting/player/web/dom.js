/** Access to elements of the page. */

/** Return the element with an id, or null. */
export const byId = (id) => document.getElementById(id);

/** Return a new element, not yet in the page, with properties (not attributes) and children, elements or texts. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
