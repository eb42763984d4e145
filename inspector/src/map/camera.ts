// The camera: which part of the world (y upwards) is on the canvas (CSS pixels, y downwards).

export interface Box {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export class Camera {
  x = 0;
  y = 0;
  scale = 1; // pixels per unit
  width = 1;
  height = 1;
  private widest = 1;

  toScreen(x: number, y: number): [number, number] {
    return [(x - this.x) * this.scale + this.width / 2, (this.y - y) * this.scale + this.height / 2];
  }

  toWorld(px: number, py: number): [number, number] {
    return [(px - this.width / 2) / this.scale + this.x, this.y - (py - this.height / 2) / this.scale];
  }

  /** The part of the world that is on the canvas, with `margin` pixels around it. */
  box(margin = 0): Box {
    const [x0, y1] = this.toWorld(-margin, -margin);
    const [x1, y0] = this.toWorld(this.width + margin, this.height + margin);
    return { x0, y0, x1, y1 };
  }

  /** Shows all of `box`, `margin` pixels from the border. */
  fit(box: Box, margin = 44): void {
    const across = Math.max(box.x1 - box.x0, 1e-6);
    const up = Math.max(box.y1 - box.y0, 1e-6);
    const room = Math.min(margin, this.width / 14, this.height / 14);
    this.scale = Math.min((this.width - 2 * room) / across, (this.height - 2 * room) / up);
    this.widest = this.scale;
    this.x = (box.x0 + box.x1) / 2;
    this.y = (box.y0 + box.y1) / 2;
  }

  pan(dx: number, dy: number): void {
    this.x -= dx / this.scale;
    this.y += dy / this.scale;
  }

  /** Zooms by `factor` about a point of the canvas, which stays where it is. */
  zoom(factor: number, px: number, py: number): void {
    const [x, y] = this.toWorld(px, py);
    this.scale = Math.min(Math.max(this.scale * factor, this.widest / 8), this.widest * 4000);
    this.x = x - (px - this.width / 2) / this.scale;
    this.y = y + (py - this.height / 2) / this.scale;
  }
}

/** The smallest box around the points with finite coordinates; a unit box if there are none. */
export function bounds(points: ArrayLike<number>, chosen?: Iterable<number>): Box {
  const box = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
  const take = (i: number) => {
    const x = points[2 * i]!;
    const y = points[2 * i + 1]!;
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    box.x0 = Math.min(box.x0, x);
    box.x1 = Math.max(box.x1, x);
    box.y0 = Math.min(box.y0, y);
    box.y1 = Math.max(box.y1, y);
  };
  if (chosen) for (const i of chosen) take(i);
  else for (let i = 0; i < points.length / 2; i++) take(i);
  return box.x0 > box.x1 ? { x0: -1, y0: -1, x1: 1, y1: 1 } : box;
}
