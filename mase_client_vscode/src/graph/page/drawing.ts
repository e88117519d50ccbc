/** The drawing: boxes, edges and texts, as SVG with the theme's colours. */
import { element, svg } from '../../webview/page/elements';
import { Colour, Scale } from '../colours';
import { Expansion, isOpen, shown } from '../expansion';
import { Segment } from '../flow';
import { Line, Place, Placed, TITLE } from '../layout';
import { Graph } from '../messages';
import { Thickness } from '../thickness';
import { Box, Tree, around } from '../tree';
import { label, onBox, tooltip } from '../words';
import { ARROW, HEIGHT, INSET, Measure, SIZE, SMALL } from './measure';
import { CATEGORIES, colourOf } from './palette';

const ROUND = 5;
const [THIN_ARROW, THICK_ARROW] = ['arrowhead', 'arrowhead-thick'];
/** In pixels: thicker edges have the larger arrowhead. */
const THICK_FROM = 3;

export interface Content {
  graph: Graph;
  tree: Tree;
  open: Expansion;
  places: Placed;
  scale: Scale;
  measure: Measure;
  tensorText: (tensor: number) => string;
  /** Of the edges; undefined if all have the same. */
  thickness: Thickness | undefined;
}

export class Drawing {
  readonly surface = svg('svg', { class: 'graph', tabindex: 0, role: 'tree' });
  readonly moved = svg('g', { role: 'presentation' });
  private readonly boxes = svg('g', { role: 'presentation' });
  private readonly lines = svg('g', { class: 'lines', role: 'presentation', 'aria-hidden': 'true' });
  private readonly labels = svg('g', { class: 'labels', role: 'presentation', 'aria-hidden': 'true' });
  private readonly elements = new Map<string, SVGGElement>();
  private drawnLines: { element: SVGElement; tensor: number }[] = [];
  private content: Content | undefined;

  constructor() {
    this.moved.append(this.boxes, this.lines, this.labels);
    this.surface.append(svg('defs', {}, arrowhead(THIN_ARROW, 8.4), arrowhead(THICK_ARROW, 13)), this.moved);
  }

  show(content: Content): void {
    this.content = content;
    this.elements.clear();
    const found = [...shown(content.tree.root, content.open)];
    this.boxes.replaceChildren(...found.map((box, number) => this.box(box, number, content)));
    this.drawnLines = content.places.lines.map((line) => ({ element: lineOf(line, content), tensor: line.segment.tensor }));
    this.lines.replaceChildren(...this.drawnLines.map(({ element }) => element));
    this.thicken(content.thickness);
    this.labels.replaceChildren(...content.places.lines.flatMap((line) => labelOf(line, content)));
    this.surface.setAttribute('aria-label', `Graph of ${content.graph.model}`);
    this.paint(content.scale);
  }

  /** Colour the boxes. */
  paint(scale: Scale): void {
    for (const [id, group] of this.elements) {
      const box = this.content?.tree.byId.get(id);
      if (box !== undefined) tint(group, scale.of(box));
    }
  }

  /** Give the edges their thickness, or all the same. */
  thicken(thickness: Thickness | undefined): void {
    for (const { element, tensor } of this.drawnLines) {
      const width = thickness?.of(tensor);
      if (width === undefined) element.style.removeProperty('--thickness');
      else element.style.setProperty('--thickness', `${width}px`);
      const thick = width !== undefined && width > THICK_FROM;
      if (element.hasAttribute('marker-end')) element.setAttribute('marker-end', `url(#${thick ? THICK_ARROW : THIN_ARROW})`);
    }
  }

  /** Give these boxes a class, and remove it from all others. */
  mark(name: string, ids: Iterable<string>): void {
    const wanted = new Set(ids);
    for (const [id, group] of this.elements) group.classList.toggle(name, wanted.has(id));
  }

  /** Set the keyboard focus. */
  focus(id: string | undefined): void {
    this.mark('selected', id === undefined ? [] : [id]);
    for (const group of this.elements.values()) group.removeAttribute('aria-selected');
    const group = id === undefined ? undefined : this.elements.get(id);
    group?.setAttribute('aria-selected', 'true');
    if (group === undefined) this.surface.removeAttribute('aria-activedescendant');
    else this.surface.setAttribute('aria-activedescendant', group.id);
  }

  element(id: string): SVGGElement | undefined {
    return this.elements.get(id);
  }

  /** Redraw everything that is neither a box nor hidden by one. */
  get extras(): SVGGElement[] {
    return [this.lines, this.labels];
  }

  private box(box: Box, number: number, content: Content): SVGGElement {
    const place = content.places.boxes.get(box.id) ?? { x: 0, y: 0, width: 0, height: 0 };
    const open = isOpen(box, content.open);
    const kind = box.kind === 'scope' ? `scope ${open ? 'open' : 'closed'}` : 'operation';
    const group = svg('g', {
      id: `box-${number}`,
      class: `box ${kind}`,
      transform: `translate(${place.x} ${place.y})`,
      role: 'treeitem',
      'data-id': box.id,
      'aria-level': [...around(box)].length,
      'aria-expanded': box.kind === 'scope' ? `${open}` : undefined,
      'aria-label': label(box, content.graph),
    });
    group.append(...parts(box, place, open, content));
    this.elements.set(box.id, group);
    return group;
  }
}

function parts(box: Box, place: Place, open: boolean, { graph, measure }: Content): SVGElement[] {
  const { title, beside } = onBox(box);
  const middle = open ? TITLE / 2 : HEIGHT / 2;
  const left = INSET + (box.kind === 'scope' ? ARROW : 0);
  const press = { 'data-press': true };
  const found: SVGElement[] = [svg('title', {}, tooltip(box, graph)), svg('rect', { class: 'body', width: place.width, height: place.height, rx: ROUND, ...(open ? {} : press) })];
  if (open) found.push(svg('rect', { class: 'head', width: place.width, height: TITLE, rx: ROUND, ...press }));
  if (box.kind === 'operation') found.push(svg('rect', { class: 'strip', width: 4, height: place.height, rx: 2, ...press }));
  else found.push(svg('path', { class: 'arrow', d: open ? `M8 ${middle - 2.5}l4.5 5l4.5-5` : `M10 ${middle - 4.5}l5 4.5l-5 4.5`, ...press }));
  found.push(text(title, left, middle, 'title'));
  if (beside !== '') found.push(text(beside, measure.beside(box), middle, 'beside'));
  return found;
}

function text(content: string, x: number, y: number, name: string): SVGTextElement {
  return svg('text', { class: name, x, y, 'font-size': SIZE, 'dominant-baseline': 'central', 'data-press': true }, content);
}

/** Corners are rounded, as far as there is room. */
function lineOf({ points, segment }: Line, content: Content): SVGElement {
  const { graph, tensorText, tree } = content;
  const [first, ...rest] = points;
  if (first === undefined) return svg('g');
  let path = `M${first.x} ${first.y}${behindTitle(segment, first.x, content) ? `v3m0 ${TITLE - 6}` : ''}`;
  rest.forEach((point, index) => {
    const [before, after] = [points[index] ?? first, rest[index + 1]];
    if (after === undefined) return void (path += `L${point.x} ${point.y}`);
    const radius = Math.min(6, distance(before, point) / 2, distance(point, after) / 2);
    const [start, end] = [towards(point, before, radius), towards(point, after, radius)];
    path += `L${start.x} ${start.y}Q${point.x} ${point.y} ${end.x} ${end.y}`;
  });
  const arrow = segment.to.port === undefined ? `url(#${THIN_ARROW})` : undefined;
  const name = graph.columns.name[segment.tensor] ?? tree.root.name;
  const line = svg('path', { class: 'line', d: path, 'marker-end': arrow, 'data-tensor': name });
  line.append(svg('title', {}, `${name}: ${tensorText(segment.tensor)}`));
  return line;
}

/** Does a line enter an open module where its title is? */
function behindTitle({ from, within }: Segment, x: number, { places, measure }: Content): boolean {
  const place = places.boxes.get(within.id);
  return from.port === 'in' && place !== undefined && x < place.x + measure.titleEnd(within);
}

function labelOf({ label: place, segment }: Line, { tensorText, graph }: Content): SVGElement[] {
  if (place === undefined) return [];
  const [x, y] = [place.x + place.width / 2, place.y + place.height / 2];
  const name = graph.columns.name[segment.tensor];
  return [svg('text', { class: 'shape', x, y, 'font-size': SMALL, 'text-anchor': 'middle', 'dominant-baseline': 'central', 'data-tensor': name }, tensorText(segment.tensor))];
}

function tint(group: SVGGElement, colour: Colour): void {
  const found = colourOf(colour);
  group.classList.toggle('coloured', found !== undefined);
  if (found === undefined) group.style.removeProperty('--colour');
  else group.style.setProperty('--colour', found);
}

/** A colour sample for the legend. */
export function swatch(colour: Colour): HTMLElement {
  const sample = element('span', { class: 'swatch', 'aria-hidden': 'true' });
  sample.style.setProperty('--colour', colourOf(colour) ?? CATEGORIES[0] ?? '');
  return sample;
}

/** An arrowhead of `size` pixels. */
function arrowhead(id: string, size: number): SVGMarkerElement {
  const box = { viewBox: '0 0 8 8', refX: 7, refY: 4, markerUnits: 'userSpaceOnUse', markerWidth: size, markerHeight: size, orient: 'auto-start-reverse' };
  return svg('marker', { id, ...box }, svg('path', { class: 'arrowhead', d: 'M0 0.5L8 4L0 7.5z' }));
}

type Point = { x: number; y: number };

function distance(one: Point, other: Point): number {
  return Math.hypot(one.x - other.x, one.y - other.y);
}

function towards(from: Point, to: Point, length: number): Point {
  const whole = distance(from, to) || 1;
  return { x: from.x + ((to.x - from.x) * length) / whole, y: from.y + ((to.y - from.y) * length) / whole };
}
