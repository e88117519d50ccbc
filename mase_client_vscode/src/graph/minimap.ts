/** The small map of a drawing: its scale, the frame around the visible part, and where a click on it leads. */
import { Place, Size, View } from './layout';

/** A narrower map could not be seen; the two axes then have different scales. */
const LEAST = 40;

/** Its size, and how much smaller it is than the drawing along each axis. */
export interface Map extends Size {
  x: number;
  y: number;
}

/** `room`: the largest size of the map. */
export function mapOf(drawing: Size, room: Size): Map {
  const scale = Math.min(room.width / drawing.width, room.height / drawing.height);
  const width = Math.min(room.width, Math.max(LEAST, drawing.width * scale));
  const height = Math.min(room.height, Math.max(LEAST, drawing.height * scale));
  return { width, height, x: width / drawing.width, y: height / drawing.height };
}

/** The visible part, on the map. `stage`: the size of the view. */
export function frameOn(map: Map, { x, y, scale }: View, stage: Size): Place {
  const [left, top] = [(-x / scale) * map.x, (-y / scale) * map.y];
  const across = between(left, left + (stage.width / scale) * map.x, map.width);
  const down = between(top, top + (stage.height / scale) * map.y, map.height);
  return { x: across[0], y: down[0], width: across[1] - across[0], height: down[1] - down[0] };
}

/** The view with a point of the map in its middle. */
export function viewAt(map: Map, point: { x: number; y: number }, scale: number, stage: Size): View {
  return { x: stage.width / 2 - (point.x / map.x) * scale, y: stage.height / 2 - (point.y / map.y) * scale, scale };
}

/** Is the whole drawing in sight? */
export function isWholeInSight(drawing: Size, { x, y, scale }: View, stage: Size): boolean {
  return x >= 0 && y >= 0 && x + drawing.width * scale <= stage.width && y + drawing.height * scale <= stage.height;
}

function between(start: number, end: number, most: number): [number, number] {
  const low = Math.min(most, Math.max(0, start));
  return [low, Math.min(most, Math.max(low, end))];
}
