// Every screen: a function that returns the contents of the panel.
import type { App } from "../app";
import type { Screen } from "../place";
import { compareScreen } from "./compare";
import { componentsScreen } from "./components";
import { edgeScreen } from "./edge";
import { episodeScreen } from "./episode";
import { guaranteeScreen } from "./guarantee";
import { mapScreen } from "./map";
import { nodeScreen } from "./node";
import { planScreen } from "./plan";
import { suspectsScreen } from "./suspects";
import { timeScreen } from "./time";
import { whyScreen } from "./why";

export const SCREENS: Record<Screen, (app: App) => Promise<Node[]>> = {
  map: mapScreen,
  node: nodeScreen,
  edge: edgeScreen,
  plan: planScreen,
  why: whyScreen,
  suspects: suspectsScreen,
  components: componentsScreen,
  time: timeScreen,
  compare: compareScreen,
  episode: episodeScreen,
  guarantee: guaranteeScreen,
};
