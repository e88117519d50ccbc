/** Creates elements concisely; texts are never parsed as HTML. */

type Attributes = Record<string, string | number | boolean | undefined>;
type Child = Node | string;
const SVG = 'http://www.w3.org/2000/svg';

/** An HTML element; attributes that are undefined or false are left out. */
export function element<K extends keyof HTMLElementTagNameMap>(name: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(name: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(SVG, name) as SVGElementTagNameMap[K], attributes, children);
}

function filled<T extends Element>(made: T, attributes: Attributes, children: Child[]): T {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : `${value}`);
  }
  made.append(...children);
  return made;
}
