/** The visible part of the drawing, moved and zoomed by mouse, trackpad and keys. */
import { Place, Size, View } from '../layout';

/** Small enough to see ten thousand operations in a row. */
const LEAST = 0.0005;
const MOST = 4;
const MARGIN = 24;
/** A wheel's notch must not zoom too far; a trackpad's pinch comes in small steps. */
const NOTCH = 40;

export class Camera {
  private view: View = { x: 0, y: 0, scale: 1 };
  private dragged: { x: number; y: number } | undefined;

  constructor(
    private readonly surface: SVGSVGElement,
    private readonly moved: SVGGElement,
    private readonly changed: (view: View) => void,
  ) {
    surface.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    surface.addEventListener('pointerdown', (event) => this.press(event));
    surface.addEventListener('pointermove', (event) => this.drag(event));
    surface.addEventListener('pointerup', () => this.release());
    surface.addEventListener('pointercancel', () => this.release());
  }

  get now(): View {
    return { ...this.view };
  }

  set(view: View): void {
    this.view = { ...view, scale: Math.min(MOST, Math.max(LEAST, view.scale)) };
    this.moved.setAttribute('transform', `translate(${this.view.x} ${this.view.y}) scale(${this.view.scale})`);
    this.changed(this.now);
  }

  /** Zoom by a factor; the given point, by default the middle, stays in place. */
  zoom(factor: number, at = this.middle): void {
    const { x, y, scale } = this.view;
    const next = Math.min(MOST, Math.max(LEAST, scale * factor));
    const ratio = next / scale;
    this.set({ x: at.x - (at.x - x) * ratio, y: at.y - (at.y - y) * ratio, scale: next });
  }

  /** Show the whole drawing; with `width`, fit its width, at most at full size, from its top on. */
  fit(size: Size, width = false): void {
    const { width: wide, height: high } = this.surface.getBoundingClientRect();
    const across = (wide - 2 * MARGIN) / size.width;
    const scale = Math.min(1, width ? Math.max(across, 0.35) : Math.min(across, (high - 2 * MARGIN) / size.height));
    const top = (high - size.height * scale) / 2;
    this.set({ x: (wide - size.width * scale) / 2, y: width ? Math.max(MARGIN / 2, Math.min(top, MARGIN)) : top, scale });
  }

  /** Move a box into view with as little motion as possible; to the middle if it is far away. */
  reveal(place: Place): void {
    const { width, height } = this.surface.getBoundingClientRect();
    const { x, y, scale } = this.view;
    const [left, top] = [place.x * scale + x, place.y * scale + y];
    const [high, wide] = [Math.min(place.height * scale, height), Math.min(place.width * scale, width)];
    const inside = left >= 0 && top >= 0 && left + wide <= width && top + high <= height;
    if (!inside) this.set({ x: x + (width - wide) / 2 - left, y: y + (height - high) / 2 - top, scale });
  }

  pan(x: number, y: number): void {
    this.set({ ...this.view, x: this.view.x + x, y: this.view.y + y });
  }

  get middle(): { x: number; y: number } {
    const { width, height } = this.surface.getBoundingClientRect();
    return { x: width / 2, y: height / 2 };
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const step = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 20 : 1;
    const { left, top } = this.surface.getBoundingClientRect();
    const [x, y] = [event.deltaX * step, event.deltaY * step];
    if (!event.ctrlKey && !event.metaKey) return event.shiftKey && x === 0 ? this.pan(-y, 0) : this.pan(-x, -y);
    this.zoom(Math.exp(-Math.min(NOTCH, Math.max(-NOTCH, y)) * 0.01), { x: event.clientX - left, y: event.clientY - top });
  }

  private press(event: PointerEvent): void {
    if (event.button > 1 || (event.button === 0 && (event.target as Element).closest('[data-press]') !== null)) return;
    this.dragged = { x: event.clientX, y: event.clientY };
    this.surface.setPointerCapture(event.pointerId);
    this.surface.classList.add('dragged');
  }

  private drag(event: PointerEvent): void {
    if (this.dragged === undefined) return;
    this.pan(event.clientX - this.dragged.x, event.clientY - this.dragged.y);
    this.dragged = { x: event.clientX, y: event.clientY };
  }

  private release(): void {
    this.dragged = undefined;
    this.surface.classList.remove('dragged');
  }
}
