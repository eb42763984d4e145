// The WebGL2 renderer.
import type { Camera } from "./camera";
import type { Palette, Rgb } from "./palette";
import { HEAD_FROM, nodeZoom, type Renderer, type Scene, typicalLength, visibleEdges } from "./renderer";
import { FLOOR, LINES, NODES, SHAFTS } from "./shaders";

const ROW = 1024; // texels per row
export const WALL = 2; // pixels
const CORNERS = [[0, -1], [0, 1], [1, -1], [1, -1], [0, 1], [1, 1]]; // of a wall: along, aside
const SOFTWARE = /llvmpipe|swiftshader|softpipe|software|basic render/i;

class Program {
  readonly handle: WebGLProgram;
  private readonly places = new Map<string, WebGLUniformLocation | null>();

  constructor(
    private readonly gl: WebGL2RenderingContext,
    [vertex, fragment]: readonly [string, string],
  ) {
    this.handle = gl.createProgram()!;
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]] as const) {
      const shader = gl.createShader(kind)!;
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(this.handle, shader);
    }
    gl.linkProgram(this.handle);
    if (!gl.getProgramParameter(this.handle, gl.LINK_STATUS)) {
      const shaders = gl.getAttachedShaders(this.handle)!.map((one) => gl.getShaderInfoLog(one));
      throw new Error(`WebGL2 cannot draw here: ${gl.getProgramInfoLog(this.handle)} ${shaders.join(" ")}`);
    }
  }

  at(name: string): WebGLUniformLocation | null {
    if (!this.places.has(name)) this.places.set(name, this.gl.getUniformLocation(this.handle, name));
    return this.places.get(name)!;
  }
}

export class GlRenderer implements Renderer {
  readonly kind = "webgl2";
  readonly software: boolean;
  private readonly lines: Program;
  private readonly shafts: Program;
  private readonly nodes: Program;
  private readonly floor: Program;
  private readonly textures: WebGLTexture[];
  private readonly buffers: WebGLBuffer[];
  private readonly indices: WebGLBuffer;
  private readonly nodeArray: WebGLVertexArrayObject;
  private readonly floorArray: WebGLVertexArrayObject;
  private readonly edgeArray: WebGLVertexArrayObject;
  private scene!: Scene;
  private visible = new Uint32Array(0);
  private order = new Uint32Array(0);
  private length = 1;
  /** Largest number of edges drawn with shafts and heads; more are drawn as lines. */
  private readonly detailed: number;

  constructor(private readonly gl: WebGL2RenderingContext) {
    const name = String(gl.getParameter(gl.RENDERER)) + unmasked(gl);
    this.software = SOFTWARE.test(name);
    this.detailed = this.software ? 6000 : 150_000;
    this.lines = new Program(gl, LINES);
    this.shafts = new Program(gl, SHAFTS);
    this.nodes = new Program(gl, NODES);
    this.floor = new Program(gl, FLOOR);
    this.textures = [0, 1, 2].map(() => gl.createTexture()!);
    this.buffers = [0, 1, 2, 3].map(() => gl.createBuffer()!);
    this.indices = gl.createBuffer()!;
    [this.nodeArray, this.floorArray, this.edgeArray] = [0, 1, 2].map(() => gl.createVertexArray()!) as [
      WebGLVertexArrayObject, WebGLVertexArrayObject, WebGLVertexArrayObject,
    ];
    this.layOut();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  private layOut(): void {
    const { gl } = this;
    const [positions, tints, shapes, floor] = this.buffers;
    gl.bindVertexArray(this.nodeArray);
    gl.bindBuffer(gl.ARRAY_BUFFER, positions!);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, tints!);
    gl.enableVertexAttribArray(1);
    gl.vertexAttribPointer(1, 4, gl.UNSIGNED_BYTE, true, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, shapes!);
    gl.enableVertexAttribArray(2);
    gl.vertexAttribPointer(2, 4, gl.UNSIGNED_BYTE, false, 0, 0);
    gl.bindVertexArray(this.floorArray);
    gl.bindBuffer(gl.ARRAY_BUFFER, floor!);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 4, gl.FLOAT, false, 24, 0);
    gl.enableVertexAttribArray(1);
    gl.vertexAttribPointer(1, 2, gl.FLOAT, false, 24, 16);
    gl.bindVertexArray(this.edgeArray);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.indices);
    gl.bindVertexArray(null);
  }

  load(scene: Scene): void {
    const { gl } = this;
    this.scene = scene;
    const { position, source, target } = scene.graph;
    const ends = new Float32Array(4 * source.length);
    for (let i = 0; i < source.length; i++) {
      ends.set([position[2 * source[i]!]!, position[2 * source[i]! + 1]!, position[2 * target[i]!]!, position[2 * target[i]! + 1]!], 4 * i);
    }
    this.texture(0, ends);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[0]!);
    gl.bufferData(gl.ARRAY_BUFFER, position, gl.STATIC_DRAW);
    this.visible = new Uint32Array(source.length);
    this.order = new Uint32Array(6 * source.length);
    this.length = typicalLength(scene.graph);
    this.recolour(scene);
  }

  recolour(scene: Scene): void {
    const { gl } = this;
    this.scene = scene;
    this.texture(1, scene.paint.edges);
    this.texture(2, scene.paint.strokes);
    for (const [i, bytes] of [[1, scene.paint.nodes], [2, scene.paint.shapes], [3, walls(scene.floor)]] as const) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[i]!);
      gl.bufferData(gl.ARRAY_BUFFER, bytes, gl.DYNAMIC_DRAW);
    }
  }

  /** Puts four numbers per edge into texture `unit`, in rows of `ROW`. */
  private texture(unit: number, values: Float32Array | Uint8Array): void {
    const { gl } = this;
    const rows = Math.max(1, Math.ceil(values.length / 4 / ROW));
    const full = values.length === rows * ROW * 4 ? values : pad(values, rows * ROW * 4);
    const [inner, type] = values instanceof Float32Array ? [gl.RGBA32F, gl.FLOAT] : [gl.RGBA8, gl.UNSIGNED_BYTE];
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, this.textures[unit]!);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.texImage2D(gl.TEXTURE_2D, 0, inner, ROW, rows, 0, gl.RGBA, type, full);
  }

  draw(camera: Camera, palette: Palette, ratio: number): void {
    const { gl } = this;
    gl.viewport(0, 0, gl.canvas.width, gl.canvas.height);
    const [r, g, b] = unit(palette.paper);
    gl.clearColor(r, g, b, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (this.scene.floor.length) this.drawFloor(camera, palette, ratio);
    this.drawEdges(camera, ratio);
    this.use(this.nodes, camera, ratio);
    gl.uniform1f(this.nodes.at("zoom"), nodeZoom(camera, this.length));
    gl.uniform3f(this.nodes.at("rim"), r, g, b);
    gl.bindVertexArray(this.nodeArray);
    gl.drawArrays(gl.POINTS, 0, this.scene.graph.component.length);
  }

  private drawFloor(camera: Camera, palette: Palette, ratio: number): void {
    this.use(this.floor, camera, ratio);
    this.gl.uniform3f(this.floor.at("rim"), ...unit(palette.floor));
    this.gl.bindVertexArray(this.floorArray);
    this.gl.uniform1f(this.floor.at("wide"), WALL);
    this.gl.drawArrays(this.gl.TRIANGLES, 0, (this.scene.floor.length / 4) * CORNERS.length);
  }

  private drawEdges(camera: Camera, ratio: number): void {
    const { gl } = this;
    const count = visibleEdges(this.scene, camera, this.visible);
    const program = count > this.detailed ? this.lines : this.shafts;
    this.use(program, camera, ratio);
    ["ends", "colours", "strokes"].forEach((name, i) => gl.uniform1i(program.at(name), i));
    gl.bindVertexArray(this.edgeArray);
    if (program === this.lines) return this.drawIndices(gl.LINES, count, [0, 1]);
    const heads = this.length * camera.scale > HEAD_FROM;
    gl.uniform1f(program.at("gap"), heads ? 3.5 * nodeZoom(camera, this.length) : 0);
    gl.uniform1f(program.at("taper"), heads ? 0.8 : 0.2);
    gl.uniform1f(program.at("head"), 0);
    this.drawIndices(gl.TRIANGLES, count, [0, 1, 2, 2, 1, 3]);
    if (!heads) return;
    gl.uniform1f(program.at("head"), 1);
    this.drawIndices(gl.TRIANGLES, count, [0, 1, 2]);
  }

  private drawIndices(mode: number, count: number, corners: number[]): void {
    const { gl, order, visible } = this;
    let k = 0;
    for (let i = 0; i < count; i++) for (const corner of corners) order[k++] = 4 * visible[i]! + corner;
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, order.subarray(0, k), gl.STREAM_DRAW);
    gl.drawElements(mode, k, gl.UNSIGNED_INT, 0);
  }

  private use(program: Program, camera: Camera, ratio: number): void {
    this.gl.useProgram(program.handle);
    this.gl.uniform4f(program.at("view"), camera.x, camera.y, camera.scale, ratio);
    this.gl.uniform2f(program.at("size"), camera.width, camera.height);
  }

  finish(): void {
    this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4));
  }
}

function unit([r, g, b]: Rgb): [number, number, number] {
  return [r / 255, g / 255, b / 255];
}

/** Six vertices per line: its ends and the vertex's corner. */
function walls(lines: Float32Array): Float32Array {
  const out = new Float32Array((lines.length / 4) * CORNERS.length * 6);
  let k = 0;
  for (let i = 0; i < lines.length; i += 4) {
    for (const corner of CORNERS) {
      out.set(lines.subarray(i, i + 4), k);
      out.set(corner, k + 4);
      k += 6;
    }
  }
  return out;
}

function pad(values: Float32Array | Uint8Array, length: number): Float32Array | Uint8Array {
  const full = values instanceof Float32Array ? new Float32Array(length) : new Uint8Array(length);
  full.set(values);
  return full;
}

function unmasked(gl: WebGL2RenderingContext): string {
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  return names ? String(gl.getParameter(names.UNMASKED_RENDERER_WEBGL)) : "";
}
