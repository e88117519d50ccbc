/** Boxes glide to their new places, so that the eye can follow them, unless the user wants less motion. */
import { Placed, View } from '../layout';
import { Drawing } from './drawing';

const MILLISECONDS = 180;
/** With more boxes than this, a jump is better than a stuttering animation. */
const MOST = 400;

export type Positions = Map<string, { x: number; y: number }>;

/** The places of the boxes on the screen. */
export function positions(places: Placed | undefined, { x, y, scale }: View): Positions {
  return new Map([...(places?.boxes ?? [])].map(([id, place]) => [id, { x: place.x * scale + x, y: place.y * scale + y }]));
}

export function glide(drawing: Drawing, from: Positions, to: Positions, scale: number): void {
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches || document.body.classList.contains('vscode-reduce-motion');
  if (calm || from.size === 0 || to.size > MOST) return;
  const options = { duration: MILLISECONDS, easing: 'ease-out' };
  for (const [id, place] of to) {
    const [old, element] = [from.get(id), drawing.element(id)];
    if (old === undefined) element?.animate([{ opacity: 0 }, { opacity: 1 }], options);
    else if (old.x !== place.x || old.y !== place.y) {
      const shift = `translate(${(old.x - place.x) / scale}px, ${(old.y - place.y) / scale}px)`;
      element?.animate([{ transform: shift }, { transform: 'none' }], { ...options, composite: 'add' });
    }
  }
  for (const group of drawing.extras) group.animate([{ opacity: 0 }, { opacity: 0, offset: 0.6 }, { opacity: 1 }], options);
}
