/** The drawing as a file: standalone SVG with its present colours, or PNG. */
import { svg } from '../../webview/page/elements';
import { xmlText } from '../../webview/xml';
import { Size } from '../layout';

const PROPERTIES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight'];
const MARGIN = 16;
/** Browsers refuse larger canvases. */
const MOST_PIXELS = 16_000;
const BETTER = 2;

/** The text of an SVG file with the whole drawing, even its invisible parts. */
export function svgText(surface: SVGSVGElement, size: Size): string {
  const copy = surface.cloneNode(true) as SVGSVGElement;
  const [from, to] = [surface.querySelectorAll('*'), copy.querySelectorAll('*')];
  from.forEach((element, index) => freeze(element, to[index]));
  copy.querySelectorAll('*').forEach(strip);
  const group = copy.querySelector(':scope > g');
  group?.setAttribute('transform', `translate(${MARGIN} ${MARGIN})`);
  const [width, height] = [size.width + 2 * MARGIN, size.height + 2 * MARGIN];
  const made = svg('svg', { xmlns: 'http://www.w3.org/2000/svg', width, height, viewBox: `0 0 ${width} ${height}` });
  made.append(svg('rect', { width, height, fill: getComputedStyle(document.body).backgroundColor }), ...copy.childNodes);
  return xmlText(new XMLSerializer().serializeToString(made));
}

/** An element's styles from the style sheets, as attributes of its copy. */
function freeze(element: Element, copy: Element | undefined): void {
  if (copy === undefined || element.tagName === 'title') return;
  const style = getComputedStyle(element);
  for (const name of PROPERTIES) {
    const value = style.getPropertyValue(name);
    if (value !== '') copy.setAttribute(name, value === 'context-stroke' ? 'currentColor' : value);
  }
}

function strip(element: Element): void {
  for (const name of ['class', 'style', 'data-id', 'data-press', 'role', 'aria-level', 'aria-expanded', 'aria-selected', 'aria-hidden']) element.removeAttribute(name);
}

/** The same as a PNG in base64, at twice the size, or at the maximum size of a canvas. */
export async function pngText(text: string, size: Size): Promise<string> {
  const url = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  const image = new Image();
  image.src = url;
  await image.decode();
  URL.revokeObjectURL(url);
  const [width, height] = [size.width + 2 * MARGIN, size.height + 2 * MARGIN];
  const scale = Math.min(BETTER, MOST_PIXELS / width, MOST_PIXELS / height);
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/png').replace(/^[^,]*,/, '');
}
