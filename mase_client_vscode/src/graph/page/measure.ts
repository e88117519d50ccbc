/** The sizes of texts in the page's own font. */
import { Box } from '../tree';
import { Size, Sizes, TITLE } from '../layout';
import { onBox } from '../words';

export const SIZE = 13;
export const SMALL = 11;
export const HEIGHT = 26;
/** The space left of a box's text: its strip of colour, or the arrow of a scope. */
export const INSET = 12;
export const ARROW = 14;
const GAP = 8;

/** Measures each text once. */
export class Measure implements Sizes {
  private readonly context = document.createElement('canvas').getContext('2d');
  private readonly known = new Map<string, number>();
  private readonly family = getComputedStyle(document.body).fontFamily;

  constructor(private readonly tensorText: (tensor: number) => string) {}

  width(text: string, size: number, weight = 400): number {
    const font = `${weight} ${size}px ${this.family}`;
    const key = `${font}|${text}`;
    let width = this.known.get(key);
    if (width === undefined && this.context !== null) {
      this.context.font = font;
      this.known.set(key, (width = Math.ceil(this.context.measureText(text).width)));
    }
    return width ?? text.length * size * 0.6;
  }

  /** The start of a box's second text. */
  beside(box: Box): number {
    const inset = INSET + (box.kind === 'scope' ? ARROW : 0);
    return inset + this.width(onBox(box).title, SIZE, 600) + GAP;
  }

  /** The end of its texts. */
  titleEnd(box: Box): number {
    const { beside } = onBox(box);
    return this.beside(box) + (beside === '' ? 0 : this.width(beside, SIZE));
  }

  box(box: Box, open: boolean): Size {
    const { beside } = onBox(box);
    const width = this.titleEnd(box) + (beside === '' ? 2 : INSET);
    // Edges enter in the middle: an open scope is wide enough for its title to fit left of that.
    return open ? { width: 2 * width, height: TITLE + 20 } : { width: Math.max(width, 48), height: HEIGHT };
  }

  label(tensor: number): Size {
    return { width: this.width(this.tensorText(tensor), SMALL) + 6, height: 15 };
  }
}
