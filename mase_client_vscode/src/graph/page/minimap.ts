/** A map of the whole drawing beside it: shows the visible part, and a click or a drag moves that. */
import { element } from '../../webview/page/elements';
import { Scale } from '../colours';
import { Expansion, isOpen, shown } from '../expansion';
import { Place, Placed, Size, View } from '../layout';
import { Map as Scaled, frameOn, isWholeInSight, mapOf, viewAt } from '../minimap';
import { Box, Tree } from '../tree';
import { Camera } from './camera';
import { colourOf } from './palette';

const MOST: Size = { width: 130, height: 280 };
/** At most this part of the view. */
const SHARE = 0.5;

/** Drawn on a canvas, because elements for ten thousand boxes more would be slow. Only for the mouse: the keys move the view itself. */
export class Minimap {
  private readonly canvas = element('canvas');
  private readonly frame = element('div', { class: 'frame' });
  readonly root = element('div', { class: 'minimap', 'aria-hidden': 'true', title: 'The whole graph: click or drag to move the view' }, this.canvas, this.frame);
  private readonly probe = element('span', { hidden: true });
  private drawn: { places: Placed; boxes: Box[]; open: Expansion; scale: Scale } | undefined;
  private map: Scaled | undefined;
  private framed: Place = { x: 0, y: 0, width: 0, height: 0 };
  private grip: { x: number; y: number } | undefined;
  private wanted = true;
  private queued = false;
  /** The size of the view, which would take long to measure after each change of a large drawing. */
  private stage: Size = { width: 0, height: 0 };

  constructor(
    surface: SVGSVGElement,
    private readonly camera: () => Camera,
  ) {
    this.root.append(this.probe);
    this.root.addEventListener('pointerdown', (event) => this.press(event));
    this.root.addEventListener('pointermove', (event) => this.drag(event));
    for (const end of ['pointerup', 'pointercancel'] as const) this.root.addEventListener(end, () => (this.grip = undefined));
    this.root.addEventListener('wheel', (event) => {
      event.preventDefault();
      surface.dispatchEvent(new WheelEvent('wheel', event));
    }, { passive: false });
    new ResizeObserver(([entry]) => {
      this.stage = entry?.contentRect ?? this.stage;
      this.drawSoon();
    }).observe(surface);
    // VS Code changes the body's class with the theme.
    new MutationObserver(() => this.drawSoon()).observe(document.body, { attributes: true, attributeFilter: ['class', 'style'] });
  }

  show(places: Placed, tree: Tree, open: Expansion, scale: Scale): void {
    this.drawn = { places, boxes: [...shown(tree.root, open)], open: new Set(open), scale };
    this.drawSoon();
  }

  /** Draw the boxes in other colours. */
  paint(scale: Scale): void {
    if (this.drawn === undefined) return;
    this.drawn = { ...this.drawn, scale };
    this.drawSoon();
  }

  want(wanted: boolean): void {
    this.wanted = wanted;
    this.follow(this.camera().now);
  }

  /** Put the frame around the visible part; a drawing that is in sight as a whole needs no map. */
  follow(view: View): void {
    if (this.drawn === undefined || this.map === undefined) return;
    this.root.hidden = !this.wanted || isWholeInSight(this.drawn.places.size, view, this.stage);
    this.framed = frameOn(this.map, view, this.stage);
    const { x, y, width, height } = this.framed;
    Object.assign(this.frame.style, { transform: `translate(${x}px, ${y}px)`, width: `${width}px`, height: `${height}px` });
  }

  /** Once before the next frame: reading styles at once would have the browser lay out the whole drawing twice. */
  private drawSoon(): void {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.draw();
    });
  }

  private draw(): void {
    const { drawn, stage } = this;
    if (drawn === undefined || stage.width === 0) return;
    const { size } = drawn.places;
    const map = (this.map = mapOf(size, { width: Math.min(MOST.width, stage.width * SHARE), height: Math.min(MOST.height, stage.height * SHARE) }));
    const dots = devicePixelRatio;
    [this.canvas.width, this.canvas.height] = [Math.round(map.width * dots), Math.round(map.height * dots)];
    Object.assign(this.root.style, { width: `${map.width}px`, height: `${map.height}px` });
    this.fill(drawn.boxes, map, dots);
    this.follow(this.camera().now);
  }

  private fill(boxes: Box[], map: Scaled, dots: number): void {
    const { canvas, drawn } = this;
    const context = canvas.getContext('2d');
    if (context === null || drawn === undefined) return;
    const colours = new Map<string, string>();
    const [area, plain] = ['color-mix(in srgb, var(--vscode-editor-foreground) 10%, transparent)', 'color-mix(in srgb, var(--vscode-editor-foreground) 45%, transparent)'];
    for (const box of boxes) {
      const place = drawn.places.boxes.get(box.id);
      if (place === undefined) continue;
      context.fillStyle = this.resolved(isOpen(box, drawn.open) ? area : (colourOf(drawn.scale.of(box)) ?? plain), colours);
      const [width, height] = [place.width * map.x * dots, place.height * map.y * dots];
      context.fillRect(place.x * map.x * dots, place.y * map.y * dots, Math.max(1, width), Math.max(1, height));
    }
  }

  /** A canvas knows no variables of a style sheet. */
  private resolved(colour: string, known: Map<string, string>): string {
    let found = known.get(colour);
    if (found === undefined) {
      this.probe.style.color = colour;
      known.set(colour, (found = getComputedStyle(this.probe).color));
    }
    return found;
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0 || this.map === undefined) return;
    event.preventDefault(); // the focus stays
    const [point, { x, y, width, height }] = [this.at(event), this.framed];
    const inside = point.x >= x && point.x <= x + width && point.y >= y && point.y <= y + height;
    const { map, stage } = this;
    const { x: left, y: top, scale } = this.camera().now;
    const middle = { x: ((stage.width / 2 - left) / scale) * map.x, y: ((stage.height / 2 - top) / scale) * map.y };
    this.grip = inside ? { x: middle.x - point.x, y: middle.y - point.y } : { x: 0, y: 0 };
    this.root.setPointerCapture(event.pointerId);
    this.drag(event);
  }

  private drag(event: PointerEvent): void {
    if (this.grip === undefined || this.map === undefined) return;
    const { x, y } = this.at(event);
    this.camera().set(viewAt(this.map, { x: x + this.grip.x, y: y + this.grip.y }, this.camera().now.scale, this.stage));
  }

  private at(event: PointerEvent): { x: number; y: number } {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }
}
